package piday

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestReflectors takes a cluster of which three of five nodes reflect to a full mesh, to reflectors on two nodes, and
// those to two others, under traffic, and demands that nothing is lost and nothing is left, and that a router outside
// learns the pods' routes all along.
func TestReflectors(t *testing.T) {
	rigtest.Full(t, "BGP's route reflectors moved under traffic, three plans one after the other")
	rig := rigtest.New(t, "../../../bin", "relay", 5, network.CalicoBGP)
	outside := outsideRouter(t, rig)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	outside.learns("before")
	nodes := rig.NodeNames()
	for i, labels := range []string{"first=", "first= next=", "next="} {
		kubectl(t, rig, append([]string{"label", "node", nodes[i]}, strings.Fields(labels)...)...)
	}
	for _, turn := range []struct{ name, selector, peers, reflect string }{
		{"mesh", "none", "", ""},
		{"first", "has(first)", "has(first)", nodes[0] + " " + nodes[1]},
		{"next", "has(next)", "has(next)", nodes[1] + " " + nodes[2]},
	} {
		file, never := filepath.Join(rig.Dir, turn.name+".yaml"), outside.never(t)
		if text, err := rig.Run(t.Context(), "plan", "--reflectors", turn.selector, "--bake", "3s", "--agent-image",
			scenario.AgentImage, "-o", file); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
		// all nodes retain their routes, until the peerings are changed
		run.Until("measuring: traffic is unaffected by the retained routes")
		for _, node := range nodes {
			if out, err := rig.OnNode(t.Context(), node, "sh", "-c", rigtest.HeldTraces); err != nil ||
				!strings.Contains(out, "table 252") || !strings.Contains(out, "lookup 252") {
				t.Errorf("%s: %s retains nothing: %v %s", turn.name, node, err, out)
			}
		}
		run.Ends(0)
		cost := rigtest.NothingLost(t, rig, time.Minute, turn.name)
		t.Logf("%s: nothing lost or leaked of %d requests; the router outside always had every route, and changed "+
			"one %d times", turn.name, cost.Sent(), never())
		outside.learns(turn.name)
		if got := kubectl(t, rig, "get", "bgppeers.crd.projectcalico.org", "-o",
			"jsonpath={.items[*].spec.peerSelector}"); got != turn.peers {
			t.Errorf("%s: the BGPPeers are to %q", turn.name, got)
		}
		var reflect []string
		for _, line := range strings.Fields(kubectl(t, rig, "get", "nodes", "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.metadata.annotations.projectcalico\.org/RouteReflectorClusterID} {end}`)) {
			if name, id, _ := strings.Cut(line, "="); id != "" {
				reflect = append(reflect, name)
			}
		}
		if got := strings.Join(reflect, " "); got != turn.reflect {
			t.Errorf("%s: %q reflect, not %q", turn.name, got, turn.reflect)
		}
		rigtest.NothingOn(t, rig, "what was retained ("+turn.name+")", rigtest.HeldTraces)
	}
}

func kubectl(t *testing.T, rig *scenario.Rig, args ...string) string {
	t.Helper()
	out, err := rig.Kubectl(t.Context(), nil, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}
