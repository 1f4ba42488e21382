package path

import (
	"hash/fnv"
	"slices"
	"sort"
)

// Degree is how many rings there are, and so the most other nodes that a node measures.
const Degree = 3

// edge says that one node measures another; ring 0 is the first.
type edge struct {
	from, to Node
	ring     int
}

// rings are the edges of the graph over the nodes, each once, ring by ring.
func rings(nodes []Node) []edge {
	named := sorted(nodes)
	backwards := slices.Clone(named)
	slices.Reverse(backwards)
	hashed := slices.Clone(named)
	sort.SliceStable(hashed, func(i, j int) bool { return hash(hashed[i].Name) < hash(hashed[j].Name) })

	seen := map[[2]string]bool{}
	var edges []edge
	for ring, order := range [Degree][]Node{named, backwards, hashed} {
		for i, from := range order {
			to := order[(i+1)%len(order)]
			pair := [2]string{from.Name, to.Name}
			if from.Name == to.Name || seen[pair] {
				continue
			}
			seen[pair] = true
			edges = append(edges, edge{from, to, ring})
		}
	}
	return edges
}

// hash spreads names: FNV-1a with a finaliser, as FNV alone keeps similar names together.
func hash(name string) uint64 {
	sum := fnv.New64a()
	sum.Write([]byte(name)) // never fails
	x := sum.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// sorted is the nodes in the order of their names.
func sorted(nodes []Node) []Node {
	named := slices.Clone(nodes)
	sort.Slice(named, func(i, j int) bool { return named[i].Name < named[j].Name })
	return named
}
