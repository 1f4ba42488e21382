package rights

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
)

// TestNote: roles of a plan of the strategy mirror, which cover the original alone, come with a note.
func TestNote(t *testing.T) {
	for _, test := range []struct {
		plan plan.Plan
		says bool
	}{
		{plan.Plan{}, false},
		{plan.Plan{Mirror: &mirror.Setup{}}, true},
	} {
		if got := note(&test.plan); got != "" != test.says {
			t.Errorf("mirror %v: %q", test.plan.Mirror != nil, got)
		}
	}
}
