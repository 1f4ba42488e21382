package bgp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestJudge: one end's word is enough for a session that is up or down, a node that lacks the other one decides against
// one that has it, and without a word of either end nothing is known.
func TestJudge(t *testing.T) {
	in := made("a", "b", "c", "rr:rr:1.1.1.1")
	in.Mesh = true
	in.peer("p", "all()", "has(rr)")
	router := netip.MustParseAddr("192.0.2.1")
	in.Peers = append(in.Peers, Peer{Name: "out", Node: "rr", IP: router, AS: 64999})
	g := Build(in, false)
	said := func(up ...string) Seen {
		seen := Seen{Peers: map[netip.Addr]string{}}
		for _, peer := range up {
			seen.add(peer, established)
		}
		return seen
	}
	const a, b, c, rr = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"
	for name, test := range map[string]struct {
		seen  map[string]Seen
		all   Tally
		mesh  Tally
		nodes [4]Tally
		down  string
	}{
		"nothing is known": {nil, Tally{Unknown: 7}, Tally{Unknown: 3},
			[4]Tally{{Unknown: 3}, {Unknown: 3}, {Unknown: 3}, {Unknown: 4}}, ""},
		"all is up": {map[string]Seen{"a": said(b, c, rr), "b": said(a, c, rr), "c": said(a, b, rr),
			"rr": said(a, b, c, "192.0.2.1")}, Tally{Up: 7}, Tally{Up: 3}, [4]Tally{{Up: 3}, {Up: 3}, {Up: 3}, {Up: 4}},
			""},
		"one end says so": {map[string]Seen{"a": said(b, c, rr)}, Tally{Up: 3, Unknown: 4}, Tally{Up: 2, Unknown: 1},
			[4]Tally{{Up: 3}, {Up: 1, Unknown: 2}, {Up: 1, Unknown: 2}, {Up: 1, Unknown: 3}}, ""},
		"one end lacks it": {map[string]Seen{"a": said(b, c, rr), "b": said(c), "c": said(a, b, rr),
			"rr": said(a, b, c)}, Tally{Up: 4, Down: 3}, Tally{Up: 2, Down: 1},
			[4]Tally{{Up: 2, Down: 1}, {Up: 1, Down: 2}, {Up: 3}, {Up: 2, Down: 2}}, " b-rr rr-192.0.2.1 a-b"},
		"both ends lack it": {map[string]Seen{"a": said(c), "b": said(c)}, Tally{Up: 2, Down: 3, Unknown: 2},
			Tally{Up: 2, Down: 1}, [4]Tally{{Up: 1, Down: 2}, {Up: 1, Down: 2}, {Up: 2, Unknown: 1},
				{Down: 2, Unknown: 2}}, " a-rr b-rr a-b"},
	} {
		down := ""
		health := g.Judge(test.seen, func(s Session) {
			peer := s.Router.IP.String()
			if s.To >= 0 {
				peer = g.Nodes[s.To].Name
			}
			if s.Down > 0 {
				down += " " + g.Nodes[s.From].Name + "-" + peer
			}
		})
		if diff := cmp.Diff(Health{test.all, test.mesh, test.nodes[:]}, health); diff != "" || down != test.down {
			t.Errorf("%s: down are%s; want%s (-want +got):\n%s", name, down, test.down, diff)
		}
	}
}

// TestJudgeMesh compares the counts of the full mesh with those of every pair, looked at one by one.
func TestJudgeMesh(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 9))
	for range 200 {
		n := 1 + random.IntN(7)
		in := made([]string{"a", "b", "c", "d", "e", "f", "g"}[:n]...)
		in.Mesh = true
		g := Build(in, false)
		seen := map[string]Seen{}
		for i := range n {
			if random.IntN(3) == 0 {
				continue
			}
			one := Seen{Peers: map[netip.Addr]string{}}
			for k := range n {
				if k != i && random.IntN(3) > 0 {
					one.Peers[g.address(k)] = established
				}
			}
			seen[g.Nodes[i].Name] = one
		}
		want := Health{Nodes: make([]Tally, n)}
		downs := map[string]int{}
		j := judge{Graph: g, seen: seen}
		for i := range n {
			for k := i + 1; k < n; k++ {
				one := j.between(i, k)
				want.All.Add(one)
				want.Mesh.Add(one)
				want.Nodes[i].Add(one)
				want.Nodes[k].Add(one)
				if one.Down > 0 {
					downs[fmt.Sprint(i, k)]++
				}
			}
		}
		visited := map[string]int{}
		got := g.Judge(seen, func(s Session) { visited[fmt.Sprint(s.From, s.To)]++ })
		if diff := cmp.Diff(want, got) + cmp.Diff(downs, visited); diff != "" {
			t.Fatalf("%v (-want +got):\n%s", seen, diff)
		}
	}
}
