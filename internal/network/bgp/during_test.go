package bgp

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestInterrupted counts pair by pair on random topologies of which one node changes its role.
func TestInterrupted(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 1))
	cut := 0
	for i := range 3000 {
		in := randomInput(random)
		changed := *in
		changed.Nodes = slices.Clone(in.Nodes)
		n := &changed.Nodes[random.IntN(len(changed.Nodes))]
		if n.ClusterID == "" {
			n.ClusterID = "0.0.0.99"
		} else {
			n.ClusterID = ""
		}
		g, after := Build(in, false), Build(&changed, false)
		kept := g.Kept(after)
		if kept.Sessions() > min(g.Sessions(), after.Sessions()) {
			t.Fatalf("topology %d: %d sessions are kept of %d, and there are %d then",
				i, kept.Sessions(), g.Sessions(), after.Sessions())
		}
		now, during, then := g.Routes(), kept.Routes(), after.Routes()
		want := 0
		for x := range g.Nodes {
			for y := range g.Nodes {
				if g.speaks[x] && g.speaks[y] && now.Learns(x, y) && then.Learns(x, y) && !during.Learns(x, y) {
					want++
				}
			}
		}
		pairs, nodes := Interrupted(now, during, then)
		if pairs != want || (want > 0) != (len(nodes) > 0) {
			t.Fatalf("topology %d: %d pairs on %v are interrupted, and one by one %d\n%s",
				i, pairs, nodes, want, describe(in))
		}
		if unchanged, _ := Interrupted(now, g.Kept(g).Routes(), now); unchanged > 0 {
			t.Fatalf("topology %d: nothing changes, and %d pairs are interrupted", i, unchanged)
		}
		cut += min(want, 1)
	}
	if cut < 100 {
		t.Errorf("in %d topologies alone is anything interrupted: that says nothing", cut)
	}
}
