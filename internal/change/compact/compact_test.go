package compact

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/step"
)

// lab is a cluster of waves of these sizes.
func lab(sizes ...int) (c Cluster) {
	for i, size := range sizes {
		wave := Wave{Name: fmt.Sprintf("wave-%d", i+1)}
		for range size {
			wave.Nodes = append(wave.Nodes, fmt.Sprintf("node-%d", len(c.All)+1))
			c.All = append(c.All, wave.Nodes[len(wave.Nodes)-1])
		}
		c.Waves = append(c.Waves, wave)
	}
	return c
}

// cordon is a step that does two things on nodes, together.
func cordon(wave Wave) step.Step {
	s := step.Step{ID: wave.Name + "/cordon", Title: "Cordon " + strings.Join(wave.Nodes, ", "), Wave: wave.Name,
		Estimate: step.Duration(len(wave.Nodes))}
	for _, verb := range []string{"hold", "pin"} {
		for i, node := range wave.Nodes {
			s.Actions = append(s.Actions,
				step.Action{ID: fmt.Sprintf("%s/%d", s.ID, len(s.Actions)+1), Do: step.Node{Verb: verb, NodeName: node},
					Title: verb + " " + node, Together: i > 0})
		}
	}
	return s
}

func TestFold(t *testing.T) {
	c := lab(1, 2, 3)
	var steps []step.Step
	for _, wave := range c.Waves {
		steps = append(steps, cordon(wave))
	}
	form, err := Fold(steps, c)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"procedure":"cordon","wave":"wave-1","nodes":"wave"}`,
		`{"procedure":"cordon","wave":"wave-2","nodes":"wave","estimate":"2ns"}`,
		`{"procedure":"cordon","wave":"wave-3","nodes":"wave","estimate":"3ns"}`,
	}
	var got []string
	for _, entry := range form.Steps {
		got = append(got, string(entry))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other rows:\n%s", diff)
	}
	const procedure = `{"id":"{wave}/cordon","title":"Cordon {nodes}","actions":[{"forEach":"nodes","do":[` +
		`{"op":"node","title":"hold {node}","nodeName":"{node}","verb":"hold"},{"op":"node","title":"pin {node}","nodeName":"{node}","verb":"pin"}]}],"estimate":"1ns"}`
	if diff := cmp.Diff(procedure, string(form.Procedures["cordon"])); diff != "" {
		t.Errorf("another procedure:\n%s", diff)
	}
}

// TestHostileNames: nodes may have any name that Kubernetes takes, also those of fields, of lists, and of one another.
func TestHostileNames(t *testing.T) {
	for _, nodes := range [][]string{
		{"a", "a-1", "a-1.b"}, {"node", "op", "id"}, {"all", "wave", "nodes"}, {"1", "11", "111"},
		{"wave-1", "hold", "pin"}, {"true", "null", "no"},
	} {
		c := Cluster{All: nodes, Waves: []Wave{{"wave-1", nodes[:1]}, {"wave-2", nodes[1:]}}}
		steps := []step.Step{cordon(c.Waves[0]), cordon(c.Waves[1]), cordon(Wave{"wave-3", nodes})}
		form, err := Fold(steps, c)
		if err != nil {
			t.Fatalf("%v: %v", nodes, err)
		}
		again, err := Expand(form, c)
		if err != nil {
			t.Fatalf("%v: %v", nodes, err)
		}
		if diff := cmp.Diff(steps, again); diff != "" {
			t.Errorf("%v: other steps come back:\n%s", nodes, diff)
		}
	}
}

// TestPlaceholders: a text that has a placeholder of its own comes back as it was.
func TestPlaceholders(t *testing.T) {
	c := lab(2, 2)
	for _, text := range []string{"{node}", "{nodes} of {wave}", "node-1 and {node}", `["{nodes}"]`, "{part}"} {
		steps := []step.Step{cordon(c.Waves[0]), cordon(c.Waves[1])}
		for i := range steps {
			steps[i].Title, steps[i].Actions[0].Title = text, text
			steps[i].Before = []step.Condition{{Is: step.NodesAmong{Nodes: []string{text}}}}
		}
		form, err := Fold(steps, c)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if again, err := Expand(form, c); err != nil || !cmp.Equal(steps, again) {
			t.Errorf("%s: other steps come back (%v)\n%s", text, err, cmp.Diff(steps, again))
		}
	}
	steps := []step.Step{cordon(c.Waves[0])}
	steps[0].Before = []step.Condition{{Is: step.NodesAmong{Nodes: []string{"{all}"}}}}
	if _, err := Fold(steps, c); err == nil {
		t.Error("a list that stands for every node was written")
	}
}

// TestShape: a step has no field that its shape lacks, or no plan could be read.
func TestShape(t *testing.T) {
	fields := func(of reflect.Type) (names []string) {
		for i := range of.NumField() {
			names = append(names, of.Field(i).Name+" "+of.Field(i).Tag.Get("json"))
		}
		return names
	}
	if diff := cmp.Diff(fields(reflect.TypeFor[step.Step]()), fields(reflect.TypeFor[shape]())); diff != "" {
		t.Error(diff)
	}
}

func TestExpandRefuses(t *testing.T) {
	c := lab(1, 2)
	for name, test := range map[string]struct{ procedure, step, words string }{
		"no procedure":         {`{}`, `{"procedure":"q"}`, `no procedure "q"`},
		"unknown field of row": {`{}`, `{"procedure":"p","speed":1}`, `unknown field "speed"`},
		"unknown field":        {`{"speed":1}`, `{"procedure":"p"}`, `unknown field "speed"`},
		"unknown field within": {`{"actions":[{"forEach":"all","do":[{"speed":1}]}]}`,
			`{"procedure":"p"}`, `unknown field "speed"`},
		"no list": {`{"actions":[{"forEach":"some","do":[{}]}]}`, `{"procedure":"p"}`, `no list of nodes "some"`},
		"no wave": {`{}`, `{"procedure":"p","wave":"wave-9","nodes":"wave"}`, `no list of nodes "wave"`},
		"a quote": {`{}`, `{"procedure":"p","node":"a\",\"op\":\"b"}`, "is no name of a node"},
		"a quote in a list": {`{"actions":[{"forEach":["a\""],"do":[{}]}]}`,
			`{"procedure":"p"}`, "is no name of a node"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Expand(Form{map[string]json.RawMessage{"p": json.RawMessage(test.procedure)},
				[]json.RawMessage{json.RawMessage(test.step)}}, c)
			if err == nil || !strings.Contains(err.Error(), test.words) {
				t.Errorf("%v, without %q", err, test.words)
			}
		})
	}
}

// TestExpandIsBounded: a small form cannot stand for more than is bearable.
func TestExpandIsBounded(t *testing.T) {
	e := newExpander(lab(1000))
	e.left = 1 << 20
	form := Form{Steps: []json.RawMessage{json.RawMessage(`{"id":"a","actions":[{"forEach":"all","do":[{"title":"` +
		strings.Repeat("x", 1<<12) + `"}]}]}`)}}
	if _, err := e.form(form); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("%v", err)
	}
}

// TestRepeats: steps repeat each other only where nothing but names differs.
func TestRepeats(t *testing.T) {
	c := lab(1, 2, 2, 2)
	var steps []step.Step
	for _, wave := range c.Waves {
		steps = append(steps, cordon(wave))
	}
	step.Edit(&steps[2].Actions[0], func(do *step.Node) { do.Verb = "clean" })
	repeats, err := NewNamer(steps, c).Repeats()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{-1, 0, -1, 0}, repeats); diff != "" {
		t.Error(diff)
	}
}

func FuzzExpand(f *testing.F) {
	c := lab(1, 2, 3)
	form, err := Fold([]step.Step{cordon(c.Waves[0]), cordon(c.Waves[1]), cordon(c.Waves[2])}, c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(form.Procedures["cordon"]), []byte(form.Steps[1]))
	f.Add([]byte(`{"actions":[{"forEach":[["a"],["b","c"]],"inTurn":true,"do":[{"title":"{node}"}]}]}`),
		[]byte(`{"procedure":"p","nodes":"all-reversed"}`))
	f.Fuzz(func(t *testing.T, procedure, entry []byte) {
		steps, err := Expand(Form{map[string]json.RawMessage{"p": procedure, "cordon": procedure},
			[]json.RawMessage{entry}}, c)
		if err != nil {
			return
		}
		form, err := Fold(steps, c)
		if err != nil {
			return
		}
		again, err := Expand(form, c)
		if err != nil {
			t.Fatal(err)
		}
		was, _ := json.Marshal(steps)
		is, _ := json.Marshal(again)
		if string(was) != string(is) {
			t.Errorf("other steps come back:\n%s\n%s", was, is)
		}
	})
}

// TestNoNames: a text names none of no nodes.
func TestNoNames(t *testing.T) {
	if node, ok := newNames().in([]byte("theseus-probe-node-1")); ok || node != "" {
		t.Errorf("%q, %v", node, ok)
	}
}
