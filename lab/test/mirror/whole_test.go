package mirror

import (
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestWhole plays the story of `make demo-mirror`: two real clusters, a dozen services behind kube-proxy's load balancer
// addresses, BIND, unbound, and clients that never pause. The idle cluster goes from flannel to Calico by the
// strategy recreate, as a part of the plan, and nobody notices.
func TestWhole(t *testing.T) {
	rigtest.Full(t, "two clusters, their names moved there and back")
	rig := rigtest.Unstarted(t, bin, "blue", 1)
	if err := scenario.Mirror(t.Context(), rig); err != nil {
		t.Fatal(err)
	}
}
