package upgrade

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestEncapsulation changes how packets go between nodes, under traffic: from BGP's routes to VXLAN and back, each
// taken back from the middle first, and to VXLAN between subnets alone, of which there is one here. Pods are not
// touched, and nothing but what is said stays on nodes.
func TestEncapsulation(t *testing.T) {
	rigtest.Full(t,
		"VXLAN to no encapsulation and back, each taken back from the middle: six plans one after the other")
	rig := rigtest.New(t, bin, "encap", 2, network.CalicoBGP)
	rig.WorldRate = 25
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
	for _, turn := range []struct {
		from, to string
		back     bool
	}{{"none", "vxlan", true}, {"vxlan", "none", true}, {"none", "vxlan-cross-subnet", false},
		{"vxlan-cross-subnet", "none", false}} {
		write := func() {
			if text, err := rig.Run(t.Context(), "plan", "--encapsulation", turn.to,
				"--agent-image", scenario.AgentImage,
				"--waves", "1,0", "--bake", "3s", "--probe-interval", "50ms", "--max-lost",
				"3", "-o", file); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		}
		if turn.back {
			write()
			run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
			run.Until("Send the outgoing traffic of encap-node-2 over the routes of Calico")
			rigtest.Run(t, rig, "there", 0, nil, "rollback")
			run.Ends(5, "undone: Change the encapsulation of IPPool",
				"undone: Send the outgoing traffic of encap-node-1")
			nothingLost(t, rig, turn.to+" and back from the middle")
			carried(t, rig, turn.from)
		}
		write()
		rigtest.Start(t, rig, "here", "apply", file, "--yes").Ends(0, "finished: done")
		nothingLost(t, rig, turn.from+" to "+turn.to)
		carried(t, rig, turn.to)
		if now := pods(t, rig); now != running {
			t.Errorf("%s to %s: pods were touched:\n%s\nand were\n%s", turn.from, turn.to, now, running)
		}
	}
}

// ways are the routing rules and routes of a node, and its tunnel.
func ways(t *testing.T, rig *scenario.Rig, node string) string {
	t.Helper()
	out, err := rig.OnNode(t.Context(), node, "sh", "-c",
		"ip rule; ip route show table all type unicast; ip -br link show type vxlan")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// carried demands that the pool says an encapsulation, that every node's routes are of it, and that no node has a pin.
func carried(t *testing.T, rig *scenario.Rig, want string) {
	t.Helper()
	mode := kubectl(t, rig, "get", "ippools.crd.projectcalico.org", "-o", "jsonpath={.items[*].spec.vxlanMode}")
	if says := map[string]string{"": "none", "Never": "none", "Always": "vxlan",
		"CrossSubnet": "vxlan-cross-subnet"}[mode]; says != want {
		t.Errorf("the pool says %q, and it is to be %s", mode, want)
	}
	others := len(rig.NodeNames()) - 1
	for _, node := range rig.NodeNames() {
		now := ways(t, rig, node)
		link, tunnel, bird := strings.Contains(now, "vxlan.calico"), strings.Count(now, "dev vxlan.calico onlink"),
			strings.Count(now, "proto bird")
		right := map[string]bool{"none": bird >= others && !link, "vxlan": bird == 0 && tunnel >= others,
			"vxlan-cross-subnet": bird == 0 && tunnel == 0 && link &&
				strings.Count(now, "/26 via 198.18.") >= others}[want]
		if !right || strings.Contains(now, "251") {
			t.Errorf("it is to be %s on %s:\n%s", want, node, now)
		}
	}
}
