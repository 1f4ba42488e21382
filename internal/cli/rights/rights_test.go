package rights

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
)

// TestLacks: roles of a plan of the strategy mirror, which cover its changes of nodes alone, come with a warning.
func TestLacks(t *testing.T) {
	for _, test := range []struct {
		plan  plan.Plan
		warns bool
	}{
		{plan.Plan{}, false},
		{plan.Plan{Mirror: &mirror.Setup{}}, true},
	} {
		if got := lacks(&test.plan); got != "" != test.warns {
			t.Errorf("mirror %v: %q", test.plan.Mirror != nil, got)
		}
	}
}
