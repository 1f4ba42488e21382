package piday

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestGate demands that a change of a cluster whose routes BIRD carries is taken back when they are not whole: when a
// label goes that its peerings hang on, and when a BIRD hangs, which costs no packet and which nothing else tells.
func TestGate(t *testing.T) {
	rigtest.Full(t, "a gate on BIRD's sessions waits a minute and a half for them to come back")
	rig := rigtest.New(t, "../../../bin", "gate", 3, network.CalicoBGP)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply := func(name string) *rigtest.Process {
		t.Helper()
		file := filepath.Join(rig.Dir, name+".yaml")
		text, err := rig.Run(t.Context(), "plan", "--dataplane", "nftables", "--waves", "1,0", "--bake", "10s", "--agent-image", scenario.AgentImage, "-o", file)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return rigtest.Start(t, rig, "here", "apply", file, "--yes")
	}

	run := apply("label")
	run.Until("measuring: measuring works")
	label := func(change string) {
		t.Helper()
		if _, err := rig.Kubectl(t.Context(), nil, append(append([]string{"label", "nodes"}, rig.NodeNames()...), change)...); err != nil {
			t.Fatal(err)
		}
	}
	label(network.MasterLabel + "-")
	run.Ends(4, "by labels and BGPPeers as they are now, 6 of 6 pairs of nodes have no route to each other (0 when the plan was made)")
	untouched(t, run)
	label(network.MasterLabel + "=")

	bird := func(signal string) {
		t.Helper()
		if out, err := rig.OnNode(t.Context(), "gate-node-3", "pkill", "-"+signal, "-x", "bird"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run = apply("hang")
	run.Until("Measure the network as it is")
	bird("STOP")
	run.Ends(4, "BGP is not whole on 1 nodes: gate-node-3 says: bird") // by then the kubelet may have ended it, and bird6 with it
	untouched(t, run)
}

func untouched(t *testing.T, run *rigtest.Process) {
	t.Helper()
	if strings.Contains(run.Said(), "set nftablesMode=Enabled") {
		t.Errorf("a node was switched all the same:\n%s", run.Said())
	}
}
