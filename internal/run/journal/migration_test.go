package journal

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestFits: what the cluster cannot hold is refused before anything is written, and all else is read as it was written.
func TestFits(t *testing.T) {
	s, large := newServer(), largePlan(t, "large", maxPlanPages*planPageBytes)
	err := Create(t.Context(), s, large)
	if err == nil || !strings.Contains(err.Error(), "but at most 536870912 and 33554432 fit") ||
		engine.HintOf(err) == "" || len(allPages(t, s)) > 0 {
		t.Errorf("%v", err)
	}
	large = largePlan(t, "large", 5*planPageBytes)
	if _, err := Fits(large); err != nil {
		t.Error(err)
	}
	packed, err := pack(large)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := unpack(packed, maxPlan); err != nil || again.Reason != large.Reason {
		t.Errorf("%v", err)
	}
}
