package guard

import (
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestLossyGates: where the baseline may lose probes, neither of the gates limits losses: the comparison decides.
func TestLossyGates(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		b := &builder{plan: &kind.Plan{Guarded: &kind.Guard{LossyBefore: lossy, Quiet: step.Duration(time.Second),
			AtMost: step.Duration(time.Minute)}}}
		b.watch()
		for name, gate := range map[string]*step.Gate{"baseline": b.baseline(), "result": b.steps[0].Gate} {
			if free := gate.MaxGap == 0 && gate.MaxLost == anyLoss; free != lossy {
				t.Errorf("lossy %t: the gate of the %s has the limits %d and %s", lossy, name, gate.MaxLost,
					time.Duration(gate.MaxGap))
			}
		}
	}
}
