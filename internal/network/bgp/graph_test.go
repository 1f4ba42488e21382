package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// made makes nodes of "name:label,label:cluster id:AS", all but the name optional; the first is 10.0.0.1.
func made(nodes ...string) *Input {
	in := &Input{AS: DefaultAS}
	for i, text := range nodes {
		fields := append(strings.Split(text, ":"), "", "", "")
		n := Node{Name: fields[0], Labels: map[string]string{}, ClusterID: fields[2],
			IPv4: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i + 1)})}
		for label := range strings.SplitSeq(fields[1], ",") {
			n.Labels[label] = ""
		}
		n.AS = parseAS(fields[3])
		in.Nodes = append(in.Nodes, n)
	}
	return in
}

// peer adds a BGPPeer between two selectors, of which an empty one is none.
func (in *Input) peer(name, node, peer string) *Input {
	p := Peer{Name: name}
	if node != "" {
		p.NodeSelector = mustParse(node)
	}
	p.PeerSelector = mustParse(peer)
	in.Peers = append(in.Peers, p)
	return in
}

func sessions(g *Graph) string {
	var all []string
	for i := range g.Nodes {
		for _, j := range g.Peers(i) {
			if i < j {
				all = append(all, g.Nodes[i].Name+g.Nodes[j].Name)
			}
		}
	}
	return fmt.Sprintf("%s mesh %d missing %d", strings.Join(all, " "), g.MeshSize(), g.Routes().Missing())
}

func TestGraphs(t *testing.T) {
	mesh := func(in *Input) *Input { in.Mesh = true; return in }
	byIP := func(in *Input, p Peer) *Input { in.Peers = append(in.Peers, p); return in }
	ip := netip.MustParseAddr
	for name, test := range map[string]struct {
		in   *Input
		want string
	}{
		"full mesh":                    {mesh(made("a", "b", "c")), " mesh 3 missing 0"},
		"a cluster id leaves the mesh": {mesh(made("a", "b", "c::1.1.1.1")), " mesh 2 missing 4"},
		"mesh and reflector": {mesh(made("a", "b", "c:rr:1.1.1.1")).peer("p", "!has(rr)", "has(rr)"),
			"ac bc mesh 2 missing 0"},
		"one reflector":  {made("a", "b", "r:rr:1.1.1.1").peer("p", "!has(rr)", "has(rr)"), "ar br mesh 0 missing 0"},
		"without its id": {made("a", "b", "r:rr").peer("p", "!has(rr)", "has(rr)"), "ar br mesh 0 missing 2"},
		"reflectors apart": {made("a", "q:rr:1.1.1.1", "r:rr:1.1.1.2").peer("p", "!has(rr)", "has(rr)"),
			"aq ar mesh 0 missing 2"},
		"a global peer reaches reflectors": {made("a", "q:rr:1.1.1.1", "r:rr:1.1.1.2").peer("p", "", "has(rr)"),
			"aq ar qr mesh 0 missing 0"},
		"nobody matches": {made("a", "b").peer("p", "has(x)", "all()").peer("q", "all()", "has(x)"),
			" mesh 0 missing 2"},
		"by address, with the way back": {byIP(made("a", "b", "c::1.1.1.1"),
			Peer{Name: "p", IP: ip("10.0.0.3"), AS: DefaultAS}), "ac bc mesh 0 missing 0"},
		"by address, of another AS": {byIP(made("a", "b"), Peer{Name: "p", IP: ip("10.0.0.2"), AS: 64600}),
			" mesh 0 missing 2"},
		"manual reverse": {byIP(made("a", "b"),
			Peer{Name: "p", Node: "a", IP: ip("10.0.0.2"), AS: DefaultAS, ManualReverse: true}), " mesh 0 missing 2"},
		"two AS": {made("a:::64600", "b:::64601", "h:hub").peer("p", "!has(hub)", "has(hub)"),
			"ah bh mesh 0 missing 0"},
		"AS loops": {made("a:::64600", "b:::64600", "h:hub").peer("p", "!has(hub)", "has(hub)"),
			"ah bh mesh 0 missing 2"},
		// RFC 4456 would have the second reflector drop what the first one reflected; BIRD 1.6 takes it from
		// one that is no client, and still does not give it to its own clients.
		"one id, clients apart": {made("a:x", "b:y", "q:rr,x:1.1.1.1", "r:rr,y:1.1.1.1").
			peer("rr", "has(rr)", "has(rr)").peer("x", "has(x) && !has(rr)", "has(rr) && has(x)").peer("y",
			"has(y) && !has(rr)", "has(rr) && has(y)"),
			"aq br qr mesh 0 missing 2"},
		"an id each": {made("a:x", "b:y", "q:rr,x:1.1.1.1", "r:rr,y:1.1.1.2").
			peer("rr", "has(rr)", "has(rr)").peer("x", "has(x) && !has(rr)", "has(rr) && has(x)").peer("y",
			"has(y) && !has(rr)", "has(rr) && has(y)"),
			"aq br qr mesh 0 missing 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sessions(Build(test.in, false)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestBackend(t *testing.T) {
	for backend, want := range map[string]int{"bird": 0, "": 0, "none": 6, "vxlan": 6} {
		in := made("a", "b", "c")
		in.Mesh, in.Backend = true, backend
		if got := Build(in, false).Routes().Missing(); got != want {
			t.Errorf("%q: %d pairs are missing, not %d", backend, got, want)
		}
	}
}

func TestWorkloads(t *testing.T) {
	in := made("a:x", "b")
	in.Peers = []Peer{{Name: "p", NodeSelector: mustParse("has(x)"), LocalWorkload: mustParse("app == 'router'")}}
	router := map[string]string{"app": "router"}
	in.Workloads = []Workload{{"n/one", "a", router}, {"n/two", "b", router}, {"n/three", "a", nil}}
	if got := Build(in, false).Workloads(); len(got) != 1 || got[0].Name != "n/one" {
		t.Error(got)
	}
}

func TestLosses(t *testing.T) {
	three := made("a", "b", "c", "q:rr:1.1.1.1", "r:rr:1.1.1.1", "s:rr:1.1.1.1").peer("p", "", "has(rr)")
	g := Build(three, false)
	for k, want := range map[int]int{1: 0, 2: 0, 3: 1} {
		losses, complete := g.Losses(k)
		if len(losses) != want || !complete {
			t.Errorf("k=%d: %+v, complete %v", k, losses, complete)
		}
		if want == 1 && (losses[0].Pairs != 6 || !slices.Equal(losses[0].Cut, []int{0, 1, 2})) {
			t.Errorf("%+v", losses[0])
		}
	}
}

// TestTooMany holds that selectors which multiply to more than can be kept are refused, not tried.
func TestTooMany(t *testing.T) {
	in := &Input{AS: DefaultAS, Peers: []Peer{{Name: "p", PeerSelector: mustParse("all()")}}}
	for i := range 2200 {
		in.Nodes = append(in.Nodes,
			Node{Name: fmt.Sprint(i), IPv4: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})})
	}
	if g := Build(in, false); g != nil {
		t.Error("it was built")
	}
}

func TestCarriers(t *testing.T) {
	rr := "rr:1.1.1.1"
	for name, test := range map[string]struct {
		in   *Input
		want string
	}{
		"one": {made("a", "b", "c:"+rr).peer("p", "!has(rr)", "has(rr)"), "[2]"},
		"three": {made("a", "b", "c:"+rr, "d:"+rr, "e:"+rr).peer("p", "!has(rr)", "has(rr)").peer("q",
			"has(rr)", "has(rr)"), "[2 3 4]"},
		"more than asked": {made("a", "b", "c:"+rr, "d:"+rr, "e:"+rr, "f:"+rr).peer("p", "!has(rr)",
			"has(rr)").peer("q", "has(rr)", "has(rr)"), "[]"},
		"a mesh": {&Input{AS: DefaultAS, Mesh: true, Nodes: made("a", "b", "c").Nodes}, "[]"},
		"two halves": {made("a:x", "b:x", "c:rr,x:1.1.1.1", "d:y", "e:y", "f:rr,y:2.2.2.2").peer("p",
			"has(x) && !has(rr)", "has(x) && has(rr)").peer("q", "has(y) && !has(rr)", "has(y) && has(rr)").peer("r",
			"has(rr)", "has(rr)"), "[2 5]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(Build(test.in, false).Carriers(3)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
