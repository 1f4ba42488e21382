package bgp

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster/selector"
)

// Graph is the BGP graph of an input, for one address family. It is immutable.
type Graph struct {
	// Nodes are sorted by name; all other fields refer to them by index.
	Nodes []Node
	// Six is true for IPv6.
	Six bool
	// Started is false if BIRD does not run, so that there are no sessions.
	Started bool
	// Spare is true if Felix programs the routes of all pools of the family, so that pods need no routes by BGP.
	Spare bool

	speaks []bool     // has an address of the family
	mesh   []uint32   // AS number of the members of the full mesh, whose edges are implicit; 0 for others
	edges  [][]edge   // the other sessions between nodes, by neighbour
	wait   []Half     // peerings without a counterpart on the other side
	out    [][]Outer  // sessions with routers outside of the cluster
	pods   []Workload // sessions with workloads
	local  []uint32   // AS number of each node
}

// edge is one side of a session; it is internal (iBGP) if both AS numbers are the same.
type edge struct {
	to            int32
	local, remote uint32 // AS numbers
	// mine is true if the neighbour is a client of this node, theirs if this node is a client of the neighbour.
	mine, theirs bool
	// allow waives the neighbour's check for its own AS number.
	allow bool
}

// Outer is a session with a router outside of the cluster, as this side is configured.
type Outer struct {
	IP       netip.Addr
	AS       uint32
	Internal bool // one AS
	client   bool
}

// Half is a peering that never becomes a session: the other side does not have it, or expects a different AS.
type Half struct {
	From, To int
	// Mismatch is true if both sides peer but the AS numbers do not match.
	Mismatch bool
}

type builder struct {
	in     *Input
	six    bool
	nodes  []Node
	byName map[string]int32
	byIP   map[netip.Addr]int32
	cached map[*selector.Selector][]int32
}

// Build makes the graph of one family; nil if the BGPPeers make more than MaxPeerings peerings.
func Build(in *Input, six bool) *Graph {
	b := &builder{in: in, six: six, nodes: slices.Clone(in.Nodes), byName: map[string]int32{},
		byIP: map[netip.Addr]int32{}, cached: map[*selector.Selector][]int32{}}
	byName := func(x, y Node) int { return cmp.Compare(x.Name, y.Name) }
	if !slices.IsSortedFunc(b.nodes, byName) {
		slices.SortFunc(b.nodes, byName)
	}
	g := &Graph{Nodes: b.nodes, Six: six, Started: in.Started(), Spare: in.spare(six),
		speaks: make([]bool, len(b.nodes)), mesh: make([]uint32, len(b.nodes)), edges: make([][]edge, len(b.nodes)),
		out: make([][]Outer, len(b.nodes)), local: make([]uint32, len(b.nodes))}
	for i := range b.nodes {
		b.byName[b.nodes[i].Name] = int32(i)
		if ip := b.address(int32(i)); ip.IsValid() {
			g.speaks[i], b.byIP[ip] = true, int32(i)
		}
		g.local[i] = b.as(int32(i))
	}
	if !g.Started {
		return g
	}
	all := b.peerings()
	if all == nil && len(b.nodes) > 0 {
		return nil
	}
	for i := range b.nodes {
		if in.Mesh && g.speaks[i] && b.nodes[i].ClusterID == "" {
			g.mesh[i] = g.local[i]
		}
	}
	g.connect(all)
	g.pods = b.workloads()
	return g
}

// connect matches the peerings of both sides. It keeps one of several sessions between two nodes.
func (g *Graph) connect(all [][]peering) {
	for i := range all {
		own := g.address(i)
		for _, p := range all[i] {
			if p.node < 0 {
				g.out[i] = append(g.out[i], Outer{p.ip, p.remote, p.remote == p.local, p.client})
				continue
			}
			if n := len(g.edges[i]); n > 0 && g.edges[i][n-1].to == p.node {
				continue
			}
			theirs := with(all[p.node], own)
			fit := slices.IndexFunc(theirs, func(t peering) bool { return t.remote == p.local && t.local == p.remote })
			if fit >= 0 {
				g.edges[i] = append(g.edges[i],
					edge{p.node, p.local, p.remote, p.client, theirs[fit].client, theirs[fit].allow})
			} else {
				g.wait = append(g.wait, Half{i, int(p.node), len(theirs) > 0})
			}
		}
		slices.SortFunc(g.edges[i], func(x, y edge) int { return cmp.Compare(x.to, y.to) })
	}
}

// with returns the peerings with an address, from peerings that are sorted by address.
func with(all []peering, ip netip.Addr) []peering {
	byIP := func(p peering, ip netip.Addr) int { return p.ip.Compare(ip) }
	from, _ := slices.BinarySearchFunc(all, ip, byIP)
	until := from
	for until < len(all) && all[until].ip == ip {
		until++
	}
	return all[from:until]
}

func (g *Graph) address(i int) netip.Addr {
	if g.Six {
		return g.Nodes[i].IPv6
	}
	return g.Nodes[i].IPv4
}

// workloads returns the pods that have BGP sessions with their nodes.
func (b *builder) workloads() []Workload {
	var found []Workload
	for i := range b.in.Peers {
		p := &b.in.Peers[i]
		if p.LocalWorkload == nil {
			continue
		}
		locals := map[string]bool{}
		for _, node := range b.locals(p) {
			locals[b.nodes[node].Name] = true
		}
		for _, w := range b.in.Workloads {
			if locals[w.Node] && p.LocalWorkload.Matches(w.Labels) {
				found = append(found, w)
			}
		}
	}
	return found
}

func (b *builder) address(i int32) netip.Addr {
	if b.six {
		return b.nodes[i].IPv6
	}
	return b.nodes[i].IPv4
}

func (b *builder) as(i int32) uint32 { return cmp.Or(b.nodes[i].AS, b.in.AS, DefaultAS) }

// port is the port that confd writes into peerings with a node; 0 for BGP's default.
func (b *builder) port(i int32) uint16 { return cmp.Or(b.in.NodePorts[b.nodes[i].Name], b.in.Port) }

// all returns the nodes that have an address of the family.
func (b *builder) all() []int32 {
	var found []int32
	for i := range b.nodes {
		if b.address(int32(i)).IsValid() {
			found = append(found, int32(i))
		}
	}
	return found
}

func (b *builder) matching(s *selector.Selector) []int32 {
	found, ok := b.cached[s]
	if !ok {
		for _, i := range b.all() {
			if s.Matches(b.nodes[i].Labels) {
				found = append(found, i)
			}
		}
		b.cached[s] = found
	}
	return found
}
