package bgp

import "slices"

// Speakers returns the nodes with an address of the family.
func (g *Graph) Speakers() []int {
	var found []int
	for i, speaks := range g.speaks {
		if speaks {
			found = append(found, i)
		}
	}
	return found
}

// Reflectors returns the speakers with a cluster ID.
func (g *Graph) Reflectors() []int {
	var found []int
	for _, i := range g.Speakers() {
		if g.Nodes[i].ClusterID != "" {
			found = append(found, i)
		}
	}
	return found
}

// InMesh reports whether a node is in the full mesh.
func (g *Graph) InMesh(i int) bool { return g.mesh[i] != 0 }

// MeshSize is the number of nodes in the full mesh.
func (g *Graph) MeshSize() int {
	size := 0
	for _, as := range g.mesh {
		if as != 0 {
			size++
		}
	}
	return size
}

// Peers returns the neighbours of a node outside of the mesh.
func (g *Graph) Peers(i int) []int {
	var found []int
	for _, e := range g.edges[i] {
		found = append(found, int(e.to))
	}
	return found
}

// Connected reports whether two nodes have a session.
func (g *Graph) Connected(i, j int) bool {
	if i != j && g.InMesh(i) && g.InMesh(j) {
		return true
	}
	return slices.ContainsFunc(g.edges[i], func(e edge) bool { return int(e.to) == j })
}

// Outside returns the sessions of a node with routers outside of the cluster.
func (g *Graph) Outside(i int) []Outer { return g.out[i] }

// Workloads returns the pods that have BGP sessions with their nodes.
func (g *Graph) Workloads() []Workload { return g.pods }

// Halves returns the peerings that never become sessions.
func (g *Graph) Halves() []Half { return g.wait }

// Sessions counts the sessions between nodes, including those of the mesh.
func (g *Graph) Sessions() int {
	mesh := g.MeshSize()
	total := mesh * (mesh - 1) / 2
	for i := range g.edges {
		for _, e := range g.edges[i] {
			if int(e.to) > i && !(g.InMesh(i) && g.InMesh(int(e.to))) {
				total++
			}
		}
	}
	return total
}

// Degree counts the sessions of a node with other nodes.
func (g *Graph) Degree(i int) int {
	degree := 0
	if g.InMesh(i) {
		degree = g.MeshSize() - 1
	}
	for _, e := range g.edges[i] {
		if !(g.InMesh(i) && g.InMesh(int(e.to))) {
			degree++
		}
	}
	return degree
}

// Via returns the reflectors with which a node has a session.
func (g *Graph) Via(i int) []int {
	var found []int
	for _, e := range g.edges[i] {
		if g.Nodes[e.to].ClusterID != "" {
			found = append(found, int(e.to))
		}
	}
	return found
}
