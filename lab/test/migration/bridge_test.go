package migration

import (
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// bridgeTraces finds what the plain bridge network leaves on a node; routes to other nodes' pods are not its own.
const bridgeTraces = `ip -o link show | grep -w cni0; ls /etc/cni/net.d | grep bridge; ls -d /var/lib/cni/networks/bridge 2>/dev/null;
	iptables-save | grep -E 'KUBE-ROUTER|theseus'; true`

// TestBridge: a network that nothing in the cluster makes is taken back to from the middle of a change, and left for good.
func TestBridge(t *testing.T) {
	rigtest.Full(t, "bridge to Calico, back and there again: six minutes")
	rig := rigtest.New(t, bin, "br", 2, "bridge", "--bake", "1s")
	rig.Network = "bridge"
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killAt(t, rig, "here", "Move the pods of br-node-", nil, "apply", plan, "--yes")
	if code, out := theseus(t, rig, "there", "rollback"); code != 5 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the rollback")
	nothingOnNodes(t, rig, "Calico", calicoTraces)

	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the migration")
	nothingOnNodes(t, rig, "the bridge", bridgeTraces)
}
