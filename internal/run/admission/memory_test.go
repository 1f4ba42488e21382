package admission

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestMemory: what needs more memory than the controller has is refused, and the hint says how much is needed.
func TestMemory(t *testing.T) {
	for _, test := range []struct {
		memory Memory
		nodes  int64
		hint   string
	}{
		{0, 3000, ""}, {0, 5000, "resources.limits.memory of the chart to 1565Mi"},
		{2 << 30, 5000, ""}, {64 << 20, 1, "101Mi"},
	} {
		refusal, _ := test.memory.FitsNodes(test.nodes).(*Refusal)
		if refusal == nil && test.hint != "" || refusal != nil && (test.hint == "" ||
			refusal.Reason != v1alpha1.ReasonTooLarge || !strings.Contains(refusal.Hint(), test.hint)) {
			t.Errorf("%s, %d nodes: %v, want the hint %q", test.memory, test.nodes, refusal, test.hint)
		}
	}
	if most := Memory(0).PlanBytes(); Memory(0).FitsPlan("p", most) != nil || Memory(0).FitsPlan("p", most+1) == nil ||
		Memory(1).PlanBytes() != 0 {
		t.Errorf("a plan of at most %d bytes", most)
	}
}
