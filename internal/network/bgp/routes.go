package bgp

import (
	"encoding/binary"
	"slices"
)

// Routes says which node learns which routes. Nodes that have the same neighbours with the same settings are combined
// into a class, so that thousands of clients of three reflectors cost as much as one.
type Routes struct {
	graph *Graph
	// class of each node, -1 for nodes that are down or do not run BGP.
	class []int32
	size  []int
	// reach[origin class][class]; twins[class] is whether members learn each other's routes.
	reach [][]bool
	twins []bool
}

// Routes propagates every node's routes until nothing changes. It assumes that routers outside of the cluster pass
// routes to each other and back, as far as the rules of the sessions allow.
func (g *Graph) Routes() *Routes { return g.routes(nil) }

// routes propagates without the nodes that are down.
func (g *Graph) routes(down []int) *Routes {
	r := &Routes{graph: g}
	r.class, r.size = g.classes(down)
	q := g.quotient(r)
	r.reach = make([][]bool, len(r.size))
	r.twins = make([]bool, len(r.size))
	for c := range r.size {
		r.reach[c], r.twins[c] = q.from(c)
	}
	return r
}

// Learns reports whether a node has the routes of another one. Every node has its own routes.
func (r *Routes) Learns(node, origin int) bool {
	n, o := r.class[node], r.class[origin]
	switch {
	case n < 0 || o < 0:
		return false
	case node == origin:
		return true
	case n == o:
		return r.twins[n]
	}
	return r.reach[o][n]
}

// Missing counts the ordered pairs of running nodes where the first lacks the routes of the second.
func (r *Routes) Missing() int {
	total := 0
	for o, n := range r.size {
		if !r.twins[o] {
			total += n * (n - 1)
		}
		for c, m := range r.size {
			if c != o && !r.reach[o][c] {
				total += n * m
			}
		}
	}
	return total
}

// Pairs counts all ordered pairs of running nodes.
func (r *Routes) Pairs() int {
	n := 0
	for _, size := range r.size {
		n += size
	}
	return n * (n - 1)
}

// Lacks counts the nodes whose routes a node does not have.
func (r *Routes) Lacks(node int) int {
	n := r.class[node]
	if n < 0 {
		return 0
	}
	total := 0
	for o, size := range r.size {
		switch {
		case o == int(n) && !r.twins[o]:
			total += size - 1
		case o != int(n) && !r.reach[o][n]:
			total += size
		}
	}
	return total
}

// classes combines nodes whose neighbours are the same, or would be the same if each node were its own neighbour too.
func (g *Graph) classes(down []int) (class []int32, size []int) {
	class = make([]int32, len(g.Nodes))
	gone := make([]bool, len(g.Nodes))
	for _, i := range down {
		gone[i] = true
	}
	open := map[string][]int32{}
	for i := range g.Nodes {
		class[i] = -1
		if g.speaks[i] && !gone[i] {
			key := g.signature(i, gone, false)
			open[key] = append(open[key], int32(i))
		}
	}
	single := map[string][]int32{}
	groups := [][]int32{}
	for _, members := range open {
		if len(members) == 1 {
			key := g.signature(int(members[0]), gone, true)
			single[key] = append(single[key], members[0])
		} else {
			groups = append(groups, members)
		}
	}
	for _, members := range single {
		groups = append(groups, members)
	}
	slices.SortFunc(groups, func(x, y []int32) int { return int(x[0]) - int(y[0]) })
	for c, members := range groups {
		size = append(size, len(members))
		for _, i := range members {
			class[i] = int32(c)
		}
	}
	return class, size
}

// signature is everything that determines a node's part in propagation. A closed signature includes the node among its
// neighbours, as a plain peer in its own AS, so that nodes which all peer with each other have equal signatures.
func (g *Graph) signature(i int, gone []bool, closed bool) string {
	var b []byte
	number := func(n uint32) { b = binary.BigEndian.AppendUint32(b, n) }
	put := func(e edge) {
		number(uint32(e.to))
		number(e.local)
		number(e.remote)
		b = append(b, flag(e.mine), flag(e.theirs), flag(e.allow))
	}
	number(g.local[i])
	number(g.mesh[i])
	b = append(b, g.Nodes[i].ClusterID...)
	b = append(b, 0, flag(closed))
	terms := [4]byte{}
	for _, o := range g.out[i] {
		terms[2*flag(o.Internal)+flag(o.client)] = 1
	}
	b = append(b, terms[:]...)
	self := edge{to: int32(i), local: g.local[i], remote: g.local[i]}
	for _, e := range g.edges[i] {
		if closed && self.to < e.to {
			put(self)
			closed = false
		}
		if !gone[e.to] {
			put(e)
		}
	}
	if closed {
		put(self)
	}
	return string(b)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
