package bgp

import "net/netip"

// Tally counts sessions by their measured state. A session is up if a node says so and no node says otherwise, and down
// if a node says so. Of the other sessions nothing is known: neither end has reported.
type Tally struct {
	Up      int `json:"up,omitempty"`
	Down    int `json:"down,omitempty"`
	Unknown int `json:"unknown,omitempty"`
}

// Total counts all sessions.
func (t Tally) Total() int { return t.Up + t.Down + t.Unknown }

// Add adds the sessions of another tally.
func (t *Tally) Add(other Tally) {
	t.Up, t.Down, t.Unknown = t.Up+other.Up, t.Down+other.Down, t.Unknown+other.Unknown
}

// Session is one session of a graph in its measured state.
type Session struct {
	// From and To are the indices of its nodes, the lower one first. To is -1 if the peer is Router.
	From, To int
	Router   Outer
	Tally    // of this session alone
}

// Health is the measured state of a graph's sessions.
type Health struct {
	// All counts every session once, Mesh those of the full mesh, and Nodes those of each node, by index.
	All, Mesh Tally
	Nodes     []Tally
}

// Judge counts sessions by what the nodes say of theirs, by name; a node without an entry has said nothing. visit gets
// every session outside of the full mesh, and those of the mesh that are down.
func (g *Graph) Judge(seen map[string]Seen, visit func(Session)) Health {
	j := judge{Graph: g, seen: seen, visit: visit, Health: Health{Nodes: make([]Tally, len(g.Nodes))}}
	for _, from := range g.Speakers() {
		for _, e := range g.edges[from] {
			if to := int(e.to); to > from && !(g.InMesh(from) && g.InMesh(to)) {
				j.count(Session{From: from, To: to, Tally: j.between(from, to)})
			}
		}
		for _, router := range g.out[from] {
			j.count(Session{From: from, To: -1, Router: router, Tally: counted(j.says(from, router.IP))})
		}
	}
	j.mesh()
	return j.Health
}

// judge is Judge at work.
type judge struct {
	*Graph
	Health
	seen  map[string]Seen
	visit func(Session)
}

// says is what a node says of its session with an address: whether it is up, and whether it says anything.
func (j *judge) says(i int, peer netip.Addr) (up, heard bool) {
	seen, heard := j.seen[j.Graph.Nodes[i].Name]
	return heard && seen.Peers[peer] == established, heard
}

func counted(up, heard bool) Tally {
	switch {
	case !heard:
		return Tally{Unknown: 1}
	case up:
		return Tally{Up: 1}
	}
	return Tally{Down: 1}
}

func (j *judge) between(a, b int) Tally {
	up, heard := j.says(a, j.address(b))
	if back, ok := j.says(b, j.address(a)); ok {
		up, heard = back && (up || !heard), true
	}
	return counted(up, heard)
}

func (j *judge) count(s Session) {
	j.All.Add(s.Tally)
	j.Health.Nodes[s.From].Add(s.Tally)
	if s.To >= 0 {
		j.Health.Nodes[s.To].Add(s.Tally)
	}
	j.visit(s)
}

// mesh counts the sessions of the full mesh: all of its pairs, of which it looks at those that a node lacks.
func (j *judge) mesh() {
	var members []int
	byAddress := map[netip.Addr]bool{}
	silent := 0
	for i := range j.Graph.Nodes {
		if j.InMesh(i) {
			members, byAddress[j.address(i)] = append(members, i), true
			if _, heard := j.seen[j.Graph.Nodes[i].Name]; !heard {
				silent++
			}
		}
	}
	pairs := func(n int) int { return n * (n - 1) / 2 }
	j.Mesh = Tally{Up: pairs(len(members)) - pairs(silent), Unknown: pairs(silent)}
	for _, i := range members {
		seen, heard := j.seen[j.Graph.Nodes[i].Name]
		own := &j.Health.Nodes[i]
		if !heard {
			own.Add(Tally{Up: len(members) - silent, Unknown: silent - 1})
			continue
		}
		own.Up += len(members) - 1
		up := 0
		for peer, state := range seen.Peers {
			if state == established && byAddress[peer] {
				up++
			}
		}
		if up == len(members)-1 {
			continue
		}
		for _, other := range members {
			if up, _ := j.says(i, j.address(other)); up || other == i {
				continue
			}
			if back, ok := j.says(other, j.address(i)); ok && !back && other < i {
				continue // it was counted for the other node
			}
			one := Tally{Up: -1, Down: 1}
			j.Mesh.Add(one)
			j.Health.Nodes[i].Add(one)
			j.Health.Nodes[other].Add(one)
			j.visit(Session{From: min(i, other), To: max(i, other), Tally: Tally{Down: 1}})
		}
	}
	j.All.Add(j.Mesh)
}
