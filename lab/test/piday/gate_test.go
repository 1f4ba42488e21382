package piday

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestGate demands that a change of a cluster whose routes BIRD carries is taken back when a label goes that its
// peerings hang on.
func TestGate(t *testing.T) {
	rigtest.Full(t, "a change of data planes that is taken back when a label of BGP goes: two to four minutes")
	rig := rigtest.New(t, "../../../bin", "gate", 3, network.CalicoBGP)
	run := toNFTables(t, rig)
	run.Until("measuring: the probes work")
	kubectl(t, rig, append(append([]string{"label", "nodes"}, rig.NodeNames()...), network.MasterLabel+"-")...)
	run.Ends(4, "by labels and BGPPeers as they are now, 6 of 6 pairs of nodes have no route to each "+
		"other (0 when the plan was made)")
	untouched(t, run)
}

// TestGateHang demands the same when a BIRD hangs, which costs no packet and which nothing else tells.
func TestGateHang(t *testing.T) {
	rigtest.Full(t, "a gate on BIRD's sessions waits a minute and a half for them to come back")
	rig := rigtest.New(t, "../../../bin", "hang", 3, network.CalicoBGP)
	run := toNFTables(t, rig)
	run.Until("Measure the network before the change")
	if out, err := rig.OnNode(t.Context(), "hang-node-3", "pkill", "-STOP", "-x", "bird"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// by then the kubelet may have ended it, and bird6 with it
	run.Ends(4, "BGP sessions or routes are missing on 1 node: hang-node-3 says: bird")
	untouched(t, run)
}

// toNFTables plans a change, and begins it.
func toNFTables(t *testing.T, rig *scenario.Rig) *rigtest.Process {
	t.Helper()
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(rig.Dir, "plan.yaml")
	text, err := rig.Run(t.Context(), "plan", "--dataplane", "nftables", "--accept",
		"felix/kube-proxy-mode=the lab changes Felix alone", "--waves", "1,0", "--bake", "10s", "--agent-image",
		scenario.AgentImage, "-o", file)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return rigtest.Start(t, rig, "here", "apply", file, "--yes")
}

func untouched(t *testing.T, run *rigtest.Process) {
	t.Helper()
	if strings.Contains(run.Said(), "set nftablesMode=Enabled") {
		t.Errorf("a node was switched all the same:\n%s", run.Said())
	}
}
