package bgp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/selector"
)

// The second, naive implementation: every node's configuration is written down neighbour by neighbour, and
// announcements are passed on until nothing changes. It shares nothing with the first but the input.

type naiveNeighbor struct {
	ip            netip.Addr
	remote, local uint32
	client        bool
	allow         bool
}

type naiveRoute struct {
	internal, fromClient bool
	clusters, systems    string // such as ",1,2,"
}

type naive struct {
	in    *Input
	names []string
	nodes map[string]Node
	conf  map[string][]naiveNeighbor
	rib   map[string]map[string]map[naiveRoute]bool // by node and origin
}

func newNaive(in *Input, down ...string) *naive {
	n := &naive{in: in, nodes: map[string]Node{}, conf: map[string][]naiveNeighbor{},
		rib: map[string]map[string]map[naiveRoute]bool{}}
	for _, node := range in.Nodes {
		if node.IPv4.IsValid() {
			n.names = append(n.names, node.Name)
			n.nodes[node.Name] = node
		}
	}
	for _, name := range n.names {
		n.conf[name] = n.configure(name)
	}
	for _, name := range down {
		delete(n.nodes, name)
		delete(n.conf, name)
		n.names = slices.DeleteFunc(n.names, func(other string) bool { return other == name })
	}
	return n
}

func (n *naive) as(node Node) uint32 {
	if node.AS != 0 {
		return node.AS
	}
	return n.in.AS
}

func (n *naive) byIP(ip netip.Addr) (Node, bool) {
	for _, node := range n.nodes {
		if node.IPv4 == ip {
			return node, true
		}
	}
	return Node{}, false
}

// selected is true when a node is on the near side of a BGPPeer.
func (n *naive) selected(p Peer, node Node) bool {
	if p.NodeSelector != nil {
		return p.NodeSelector.Matches(node.Labels)
	}
	return p.Node == "" || p.Node == node.Name
}

// configure reads a BIRD configuration off the rules: the first neighbour of an address wins.
func (n *naive) configure(name string) []naiveNeighbor {
	me := n.nodes[name]
	var conf []naiveNeighbor
	add := func(ip netip.Addr, remote, local uint32, allow bool, theirID string) {
		for _, known := range conf {
			if known.ip == ip {
				return
			}
		}
		if ip == me.IPv4 {
			return
		}
		client := me.ClusterID != "" && remote == local && theirID != me.ClusterID
		conf = append(conf, naiveNeighbor{ip, remote, local, client, allow})
	}
	peers := slices.Clone(n.in.Peers)
	slices.SortFunc(peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	forward := func(p Peer) {
		if p.PeerSelector == nil {
			local := n.as(me)
			if p.LocalAS != 0 {
				local = p.LocalAS
			}
			remote := p.AS
			if remote == 0 {
				remote = n.in.AS
			}
			add(p.IP, remote, local, p.AllowOwnAS, "none")
			return
		}
		for _, other := range n.names {
			if p.PeerSelector.Matches(n.nodes[other].Labels) {
				add(n.nodes[other].IPv4, n.as(n.nodes[other]), n.as(me), false, n.nodes[other].ClusterID)
			}
		}
	}
	for _, global := range []bool{true, false} {
		for _, p := range peers {
			if (p.NodeSelector == nil && p.Node == "") == global && n.selected(p, me) {
				forward(p)
			}
		}
	}
	for _, p := range peers {
		if p.ManualReverse {
			continue
		}
		remote := false
		if p.PeerSelector != nil {
			remote = p.PeerSelector.Matches(me.Labels)
		} else {
			remote = p.IP == me.IPv4 && (p.AS == n.as(me) || p.AS == 0 && n.as(me) == n.in.AS)
		}
		if !remote {
			continue
		}
		for _, other := range n.names {
			if n.selected(p, n.nodes[other]) {
				add(n.nodes[other].IPv4, n.as(n.nodes[other]), n.as(me), false, n.nodes[other].ClusterID)
			}
		}
	}
	return conf
}

// session is one direction: from sends to to.
type session struct {
	from, to                  string
	local, remote             uint32
	clientOfMine, clientOfHis bool
	allow                     bool // the receiver's
}

func (n *naive) sessions() []session {
	var all []session
	for _, from := range n.names {
		for _, to := range n.names {
			a, b := n.nodes[from], n.nodes[to]
			if from == to {
				continue
			}
			mesh := n.in.Mesh && a.ClusterID == "" && b.ClusterID == ""
			if mesh {
				all = append(all, session{from, to, n.as(a), n.as(b), false, false, false})
			}
			for _, there := range n.conf[from] {
				for _, back := range n.conf[to] {
					if there.ip == b.IPv4 && back.ip == a.IPv4 && there.remote == back.local &&
						there.local == back.remote {
						all = append(all,
							session{from, to, there.local, there.remote, there.client, back.client, back.allow})
					}
				}
			}
		}
	}
	return all
}

const beyond = "(outside)"

func (n *naive) run() {
	for _, name := range append(slices.Clone(n.names), beyond) {
		n.rib[name] = map[string]map[naiveRoute]bool{}
		for _, origin := range n.names {
			n.rib[name][origin] = map[naiveRoute]bool{}
		}
	}
	sessions := n.sessions()
	for changed := true; changed; {
		changed = false
		learn := func(at, origin string, r naiveRoute) {
			if at != origin && !n.rib[at][origin][r] {
				n.rib[at][origin][r] = true
				changed = true
			}
		}
		for _, origin := range n.names {
			for _, s := range sessions {
				if s.from == origin {
					n.announce(s, origin, naiveRoute{fromClient: true, clusters: ",", systems: ","}, true, learn)
				}
				for r := range n.rib[s.from][origin] {
					n.announce(s, origin, r, false, learn)
				}
			}
			n.exchange(origin, learn)
		}
	}
}

func (n *naive) announce(s session, origin string, r naiveRoute, own bool, learn func(string, string, naiveRoute)) {
	sender, receiver := n.nodes[s.from], n.nodes[s.to]
	holds := func(list, item string) bool { return item != "" && strings.Contains(list, ","+item+",") }
	insert := func(list, item string) string {
		if holds(list, item) {
			return list
		}
		items := append(strings.FieldsFunc(list, func(c rune) bool { return c == ',' }), item)
		slices.Sort(items)
		return "," + strings.Join(items, ",") + ","
	}
	if s.clientOfMine && holds(r.clusters, sender.ClusterID) {
		return
	}
	if s.local != s.remote {
		r = naiveRoute{clusters: ",", systems: insert(r.systems, fmt.Sprint(s.local))}
	} else {
		if !own && r.internal {
			if !r.fromClient && !s.clientOfMine {
				return
			}
			if sender.ClusterID != "" {
				r.clusters = insert(r.clusters, sender.ClusterID)
			}
		}
		r.internal, r.fromClient = true, s.clientOfHis
		if s.clientOfHis && holds(r.clusters, receiver.ClusterID) {
			return
		}
	}
	if holds(r.systems, fmt.Sprint(s.remote)) && !s.allow {
		return
	}
	learn(s.to, origin, r)
}

// exchange passes routes to the routers outside and back.
func (n *naive) exchange(origin string, learn func(string, string, naiveRoute)) {
	for _, name := range n.names {
		for _, c := range n.conf[name] {
			if _, inside := n.byIP(c.ip); inside || n.wasNode(c.ip) {
				continue
			}
			internal := c.remote == c.local
			if name == origin {
				learn(beyond, origin, naiveRoute{})
			}
			for r := range n.rib[name][origin] {
				if !internal || !r.internal || r.fromClient || c.client {
					learn(beyond, origin, naiveRoute{})
				}
			}
			if len(n.rib[beyond][origin]) > 0 {
				learn(name, origin, naiveRoute{internal: internal, fromClient: c.client, clusters: ",", systems: ","})
			}
		}
	}
}

func (n *naive) wasNode(ip netip.Addr) bool {
	return slices.ContainsFunc(n.in.Nodes, func(node Node) bool { return node.IPv4 == ip })
}

func (n *naive) learns(node, origin string) bool {
	return node == origin || len(n.rib[node][origin]) > 0
}

// TestAgainstNaive builds random topologies both ways and compares every pair of nodes, with all nodes up
// and with one or two reflectors down.
func TestAgainstNaive(t *testing.T) {
	const shards, topologies = 10, 5_000
	var total tally
	t.Run("shards", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				mine := naiveShard(t, rand.New(rand.NewPCG(7, uint64(shard))), topologies)
				total.Lock()
				defer total.Unlock()
				total.whole, total.broken, total.harmed = total.whole+mine.whole,
					total.broken+mine.broken, total.harmed+mine.harmed
			})
		}
	})
	t.Logf("%d topologies where everybody learns every route, %d where not; losing reflectors took routes in %d",
		total.whole, total.broken, total.harmed)
	if all := shards * topologies; total.whole < all/10 || total.broken < all/10 || total.harmed < all/50 {
		t.Error("the topologies are too much alike to say anything")
	}
}

type tally struct {
	sync.Mutex
	counts
}

type counts struct{ whole, broken, harmed int }

func naiveShard(t *testing.T, random *rand.Rand, topologies int) counts {
	var c counts
	for i := 0; i < topologies && !t.Failed(); i++ {
		in := randomInput(random)
		g := Build(in, false)
		r := g.Routes()
		compareNaive(t, i, in, g, r, newNaive(in))
		if r.Missing() == 0 {
			c.whole++
		} else {
			c.broken++
		}
		reflectors := g.Reflectors()
		if len(reflectors) == 0 {
			continue
		}
		down := []int{reflectors[random.IntN(len(reflectors))]}
		names := []string{g.Nodes[down[0]].Name}
		if len(reflectors) > 1 && random.IntN(2) == 0 {
			second := reflectors[(slices.Index(reflectors, down[0])+1)%len(reflectors)]
			down, names = append(down, second), append(names, g.Nodes[second].Name)
		}
		without := g.routes(down)
		compareNaive(t, i, in, g, without, newNaive(in, names...))
		if g.lose(r, down).Pairs > 0 {
			c.harmed++
		}
	}
	return c
}

func compareNaive(t *testing.T, i int, in *Input, g *Graph, r *Routes, n *naive) {
	t.Helper()
	n.run()
	missing, lacks := 0, 0
	for node := range g.Nodes {
		if r.class[node] < 0 {
			continue
		}
		lacks += r.Lacks(node)
		for origin := range g.Nodes {
			if r.class[origin] < 0 {
				continue
			}
			got, want := r.Learns(node, origin), n.learns(g.Nodes[node].Name, g.Nodes[origin].Name)
			if got != want {
				t.Errorf("topology %d: %s learns the routes of %s: %v, and the naive way %v\n%s",
					i, g.Nodes[node].Name, g.Nodes[origin].Name, got, want, describe(in))
				return
			}
			if !got {
				missing++
			}
		}
	}
	if missing != r.Missing() || missing != lacks {
		t.Errorf("topology %d: %d pairs are missing, not %d, and nodes lack %d", i, missing, r.Missing(), lacks)
	}
}

func describe(in *Input) string {
	text := fmt.Sprintf("mesh %v AS %d\n", in.Mesh, in.AS)
	for _, n := range in.Nodes {
		text += fmt.Sprintf("%s %s AS %d cluster %q %v\n", n.Name, n.IPv4, n.AS, n.ClusterID, n.Labels)
	}
	for _, p := range in.Peers {
		text += fmt.Sprintf("%s node %q %v -> %v %s AS %d local %d manual %v\n",
			p.Name, p.Node, p.NodeSelector, p.PeerSelector, p.IP, p.AS, p.LocalAS, p.ManualReverse)
	}
	return text
}

func mustParse(text string) *selector.Selector {
	s, err := selector.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

var somePeers = []*selector.Selector{
	mustParse("has(rr)"), mustParse("!has(rr)"), mustParse("all()"), mustParse("rack == '1'"), mustParse("rack == '2'"),
	mustParse("has(rr) && rack == '1'"), mustParse("has(rr) && rack == '2'"), mustParse("rack == '3'"),
}

// randomInput makes topologies as people build them, with mistakes.
func randomInput(random *rand.Rand) *Input {
	chance := func(percent int) bool { return random.IntN(100) < percent }
	in := &Input{Mesh: chance(30), AS: DefaultAS}
	oneID, systems := chance(30), chance(25)
	for i := range 2 + random.IntN(7) {
		node := Node{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{},
			IPv4: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}
		if chance(80) {
			node.Labels["rack"] = fmt.Sprint(1 + random.IntN(2))
		}
		if chance(40) {
			node.Labels["rr"] = ""
			if chance(90) {
				node.ClusterID = fmt.Sprintf("0.0.0.%d", i+1)
				if oneID || chance(20) {
					node.ClusterID = "0.0.0.1"
				}
			}
		}
		if systems && chance(50) {
			node.AS = 64512 + uint32(random.IntN(3))
		}
		if chance(3) {
			node.IPv4 = netip.Addr{}
		}
		in.Nodes = append(in.Nodes, node)
	}
	for i := range random.IntN(4) {
		p := Peer{Name: fmt.Sprintf("p%d", random.IntN(100)*10+i), ManualReverse: chance(10)}
		switch {
		case chance(60):
			p.NodeSelector = somePeers[random.IntN(len(somePeers))]
		case chance(40):
			p.Node = fmt.Sprintf("n%d", random.IntN(9))
		}
		if chance(80) {
			p.PeerSelector = somePeers[random.IntN(len(somePeers))]
		} else {
			p.IP = netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + random.IntN(12))})
			p.AS = uint32(random.IntN(2)) * (64512 + uint32(random.IntN(3)))
			if chance(10) {
				p.LocalAS, p.AllowOwnAS = 64512+uint32(random.IntN(3)), chance(50)
			}
		}
		in.Peers = append(in.Peers, p)
	}
	return in
}
