package rehearsal

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestFaults: faults are read with their steps and commands, and what cannot be meant is refused, with a hint.
func TestFaults(t *testing.T) {
	got, err := Faults([]string{"agent", "image@random", "api@3", "mine"},
		[]string{"api=sh -c 'sleep 1; true'", "mine=x"})
	want := []Fault{{Name: "agent"}, {Name: "image"}, {"api", 3, []string{"sh", "-c", "sleep 1; true"}},
		{Name: "mine", Command: []string{"x"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Faults(nil, nil); err != nil || len(got) > 0 {
		t.Errorf("none: %+v, %v", got, err)
	}
	for _, c := range []struct {
		named, commands []string
		says            string
	}{
		{[]string{"disk"}, nil, `--faults "disk": there is no such fault`},
		{[]string{""}, nil, "there is no such fault"},
		{[]string{"A B"}, nil, "there is no such fault"},
		{[]string{"power"}, nil, "--faults power: this fault cannot be made through the API"},
		{[]string{"loss"}, nil, "--faults loss: this fault cannot be made through the API"},
		{[]string{"agent@0"}, nil, `"0" is no step`},
		{[]string{"agent@-1"}, nil, `"-1" is no step`},
		{[]string{"agent@last"}, nil, `"last" is no step`},
		{[]string{"agent@"}, nil, `"" is no step`},
		{[]string{"agent@99999999999999999999"}, nil, "is no step"},
		{slices.Repeat([]string{"agent"}, MostFaults+1), nil, "--faults names 11 faults"},
		{[]string{"api"}, []string{"api="}, "--fault-command api: it names no program"},
		{[]string{"api"}, []string{"api"}, "--fault-command api: it names no program"},
		{[]string{"api"}, []string{"api='"}, "--fault-command api: "},
		{[]string{"api"}, []string{"=true"}, `--fault-command "=true" names no fault`},
		{[]string{"api"}, []string{"api=a", "api=b"}, "--fault-command api is given twice"},
		{[]string{"agent"}, []string{"agent=a"}, "Theseus makes this fault itself"},
		{[]string{"agent"}, []string{"api=a"}, "--fault-command api: --faults does not name it"},
	} {
		_, err := Faults(c.named, c.commands)
		var fault *FaultError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.says) || fault.Hint == "" {
			t.Errorf("%q, %q: %v", c.named, c.commands, err)
		}
	}
}

// TestExpected: a fault that leaves the network alone must not have the run rolled back; one of the user's may.
func TestExpected(t *testing.T) {
	for name, back := range map[string]bool{"agent": false, "api": false, "image": true, "power": true, "loss": true,
		"mine": true} {
		f := Fault{Name: name}
		if f.MayRollBack() != back || strings.Contains(f.Expected(), "rolled back") != back {
			t.Errorf("%s: %v, %q", name, f.MayRollBack(), f.Expected())
		}
	}
}
