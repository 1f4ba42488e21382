package planning

import (
	"slices"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestToAsk: only the signals of the user's own flags are asked, and only where the cluster is read.
func TestToAsk(t *testing.T) {
	change := v1alpha1.ChangeSpec{SLO: []string{"http://p a < 1"}}
	for _, test := range []struct {
		given bool
		from  []string
		want  []string
	}{{true, nil, change.SLO}, {false, nil, nil}, {true, []string{"snapshot.json"}, nil},
		{false, []string{"snapshot.json"}, nil}} {
		if got := (Flags{AskSignals: test.given}).toAsk(test.from, change); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
