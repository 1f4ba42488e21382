package upgrade

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestEncapsulation changes how packets go between nodes, under traffic: from BGP's routes to VXLAN and back, each taken back
// from the middle first. Pods are not touched, and nothing but what is said stays on nodes.
func TestEncapsulation(t *testing.T) {
	rigtest.Full(t, "VXLAN to no encapsulation and back, each taken back from the middle: four plans one after the other")
	rig := rigtest.New(t, bin, "encap", 3, network.CalicoBGP)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	running, file := pods(t, rig), filepath.Join(rig.Dir, "plan.yaml")
	t.Cleanup(func() {
		if t.Failed() {
			for _, node := range rig.NodeNames() {
				t.Logf("%s:\n%s", node, ways(t, rig, node))
			}
		}
	})
	carried(t, rig, "none")
	for from, to := "none", "vxlan"; ; from, to = to, from {
		write := func() {
			if text, err := rig.Run(t.Context(), "plan", "--encapsulation", to, "--agent-image", scenario.AgentImage,
				"--waves", "1,0", "--bake", "3s", "--probe-interval", "20ms", "--max-lost", "3", "-o", file); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		}
		write()
		run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
		run.Until("Let calico carry what leaves encap-node-2")
		rigtest.Run(t, rig, "there", 0, nil, "rollback")
		run.Ends(5, "undone: Change IPPool", "undone: Send what leaves encap-node-1")
		nothingLost(t, rig, to+" and back from the middle")
		carried(t, rig, from)

		write()
		rigtest.Start(t, rig, "here", "apply", file, "--yes").Ends(0, "finished: done")
		nothingLost(t, rig, from+" to "+to)
		carried(t, rig, to)
		if now := pods(t, rig); now != running {
			t.Errorf("%s to %s: pods were touched:\n%s\nand were\n%s", from, to, now, running)
		}
		if to == "none" {
			return
		}
	}
}

// ways are the routing rules and routes of a node, and its tunnel.
func ways(t *testing.T, rig *scenario.Rig, node string) string {
	t.Helper()
	out, err := rig.OnNode(t.Context(), node, "sh", "-c", "ip rule; ip route show table all type unicast; ip -br link show type vxlan")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// carried demands that the pool says an encapsulation, that every node's routes are of it, and that no node has a pin.
func carried(t *testing.T, rig *scenario.Rig, want string) {
	t.Helper()
	mode := kubectl(t, rig, "get", "ippools.crd.projectcalico.org", "-o", "jsonpath={.items[*].spec.vxlanMode}")
	if want == "vxlan" && mode != "Always" || want == "none" && mode != "Never" && mode != "" {
		t.Errorf("the pool says %q, and it is to be %s", mode, want)
	}
	for _, node := range rig.NodeNames() {
		now := ways(t, rig, node)
		tunnel, bird := strings.Count(now, "dev vxlan.calico onlink"), strings.Count(now, "proto bird")
		if want == "vxlan" && (tunnel < 2 || bird > 0) || want == "none" && (bird < 2 || strings.Contains(now, "vxlan.calico")) || strings.Contains(now, "251") {
			t.Errorf("it is to be %s on %s:\n%s", want, node, now)
		}
	}
}
