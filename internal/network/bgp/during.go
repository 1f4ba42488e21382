package bgp

import (
	"cmp"
	"slices"
)

// Kept returns what remains of a graph during the change to another one with the same nodes: the sessions with the same
// settings in both. When confd changes its configuration, BIRD closes every other session, even if only the neighbour
// becomes a client, and waits before it reconnects.
func (g *Graph) Kept(after *Graph) *Graph {
	n := len(after.Nodes)
	kept := &Graph{Nodes: after.Nodes, Six: after.Six, Started: g.Started && after.Started,
		Spare: g.Spare && after.Spare, speaks: make([]bool, n), mesh: make([]uint32, n), edges: make([][]edge, n),
		out: make([][]Outer, n), local: after.local}
	for i := range after.Nodes {
		kept.speaks[i] = g.speaks[i] && after.speaks[i]
		if g.mesh[i] == after.mesh[i] {
			kept.mesh[i] = after.mesh[i]
		}
		for _, e := range g.edges[i] {
			at, there := slices.BinarySearchFunc(after.edges[i], e.to, func(x edge, to int32) int {
				return cmp.Compare(x.to, to)
			})
			if there && after.edges[i][at] == e {
				kept.edges[i] = append(kept.edges[i], e)
			}
		}
		for _, o := range g.out[i] {
			if slices.Contains(after.out[i], o) {
				kept.out[i] = append(kept.out[i], o)
			}
		}
	}
	return kept
}

// Interrupted counts the ordered pairs of nodes where the first has the second's routes before and after the change,
// but not during it, and names some of the first.
func Interrupted(before, during, after *Routes) (pairs int, nodes []int) {
	groups := map[[3]int32][]int{}
	for i := range before.class {
		key := [3]int32{before.class[i], during.class[i], after.class[i]}
		if key[0] >= 0 && key[1] >= 0 && key[2] >= 0 {
			groups[key] = append(groups[key], i)
		}
	}
	for x, learners := range groups {
		cut := 0
		for y, origins := range groups {
			i, j, n := learners[0], origins[0], len(origins)
			if x == y {
				if n--; n == 0 {
					continue
				}
				j = origins[1]
			}
			if before.Learns(i, j) && after.Learns(i, j) && !during.Learns(i, j) {
				cut += n
			}
		}
		if cut > 0 {
			pairs += cut * len(learners)
			nodes = append(nodes, learners...)
		}
	}
	slices.Sort(nodes)
	return pairs, nodes
}
