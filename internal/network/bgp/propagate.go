package bgp

// quotient is the graph of classes, in which routes are propagated.
type quotient struct {
	g       *Graph
	size    []int
	cluster []int // bit of each class's cluster ID, -1 if it has none
	mesh    []uint32
	edges   [][]link
	out     [][]Outer
	bits    bitmap
	outside int // index of all routers outside, after the last class
}

// link is an edge from one class to another, with the settings of both sides.
type link struct {
	to       int32
	internal bool
	// mine is true if the neighbour is a client of this class, theirs if this class is a client of the neighbour.
	mine, theirs bool
	// left is the bit of this side's AS number, entered that of the other side; allow waives the check for it.
	left, entered int
	allow         bool
}

// kind is how a route was learned, from the least to the most restricted.
type kind byte

const (
	free    kind = iota // own, from another AS, or from a client: passed to all neighbours
	limited             // from an iBGP peer that is not a client: passed to clients and to other ASs
)

// path is a route at a class: how it was learned, and its cluster IDs and AS numbers.
type path struct {
	kind     kind
	internal bool // learned by iBGP
	bits     set
}

// set is a set of small numbers; sets of different length are never combined.
type set []uint64

func (s set) has(bit int) bool { return bit >= 0 && s[bit/64]&(1<<(bit%64)) != 0 }

func (s set) with(bit int) set {
	if bit < 0 || s.has(bit) {
		return s
	}
	more := append(set(nil), s...)
	more[bit/64] |= 1 << (bit % 64)
	return more
}

func (s set) in(other set) bool {
	for i := range s {
		if s[i]&^other[i] != 0 {
			return false
		}
	}
	return true
}

// bitmap assigns bits to cluster IDs and AS numbers: cluster IDs first.
type bitmap struct {
	clusters map[string]int
	systems  map[uint32]int
}

func (b bitmap) words() int { return (len(b.clusters) + len(b.systems) + 63) / 64 }

// withoutClusters removes the cluster list, which does not leave an AS.
func (q *quotient) withoutClusters(s set) set {
	kept := make(set, len(s))
	for _, bit := range q.bits.systems {
		if s.has(bit) {
			kept = kept.with(bit)
		}
	}
	return kept
}

func (g *Graph) quotient(r *Routes) *quotient {
	n := len(r.size)
	q := &quotient{g: g, size: r.size, cluster: make([]int, n), mesh: make([]uint32, n), edges: make([][]link, n),
		out: make([][]Outer, n), outside: n}
	first := make([]int, n)
	for i := len(r.class) - 1; i >= 0; i-- {
		if c := r.class[i]; c >= 0 {
			first[c] = i
		}
	}
	q.number(first)
	for c, i := range first {
		q.cluster[c] = -1
		if id := g.Nodes[i].ClusterID; id != "" {
			q.cluster[c] = q.bits.clusters[id]
		}
		q.mesh[c], q.out[c] = g.mesh[i], g.out[i]
		seen := map[int32]bool{}
		for _, e := range g.edges[i] {
			to := r.class[e.to]
			if to < 0 || seen[to] {
				continue
			}
			seen[to] = true
			q.edges[c] = append(q.edges[c], q.link(to, e))
		}
	}
	return q
}

// number assigns bits to the numbers that may be in a path.
func (q *quotient) number(first []int) {
	q.bits = bitmap{map[string]int{}, map[uint32]int{}}
	for _, i := range first {
		if id := q.g.Nodes[i].ClusterID; id != "" {
			if _, ok := q.bits.clusters[id]; !ok {
				q.bits.clusters[id] = len(q.bits.clusters)
			}
		}
	}
	system := func(as uint32) {
		if _, ok := q.bits.systems[as]; !ok {
			q.bits.systems[as] = len(q.bits.clusters) + len(q.bits.systems)
		}
	}
	for _, i := range first {
		system(q.g.local[i])
		for _, e := range q.g.edges[i] {
			system(e.local)
			system(e.remote)
		}
	}
}

func (q *quotient) link(to int32, e edge) link {
	return link{to: to, internal: e.local == e.remote, mine: e.mine, theirs: e.theirs,
		left: q.bits.systems[e.local], entered: q.bits.systems[e.remote], allow: e.allow}
}

// from propagates the routes of one member of a class. It returns the other classes that learn them, and whether the
// other members of the same class do.
func (q *quotient) from(origin int) (reached []bool, twins bool) {
	reached = make([]bool, len(q.size))
	// at[c] are the paths known at class c; none of them subsumes another.
	at := make([][]path, len(q.size)+1)
	type arrival struct {
		class int
		path  path
	}
	var queue []arrival
	arrive := func(class int, p path) {
		if class == origin && q.size[origin] == 1 {
			return // a node does not accept its own route
		}
		for _, known := range at[class] {
			if known.kind <= p.kind && (p.internal || !known.internal) && known.bits.in(p.bits) {
				return
			}
		}
		at[class] = append(at[class], p)
		queue = append(queue, arrival{class, p})
		if class == origin {
			twins = true
		} else if class != q.outside {
			reached[class] = true
		}
	}
	own := path{bits: make(set, q.bits.words())}
	q.send(origin, own, arrive)
	q.sendOut(origin, own, arrive)
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		if next.class == q.outside {
			q.comeBack(next.path, arrive)
			continue
		}
		q.send(next.class, next.path, arrive)
		q.sendOut(next.class, next.path, arrive)
	}
	return reached, twins
}

// send passes a path to the neighbours of a class, by the rules of both sides.
func (q *quotient) send(from int, p path, arrive func(int, path)) {
	for _, l := range q.edges[from] {
		q.pass(from, l, p, arrive)
	}
	if q.mesh[from] == 0 {
		return
	}
	for to, as := range q.mesh {
		if as != 0 {
			q.pass(from, link{to: int32(to), internal: as == q.mesh[from],
				left: q.bits.systems[q.mesh[from]], entered: q.bits.systems[as]}, p, arrive)
		}
	}
}

func (q *quotient) pass(from int, l link, p path, arrive func(int, path)) {
	own := q.cluster[from]
	if l.mine && p.bits.has(own) {
		return // the cluster list would come back to the cluster
	}
	if !l.internal {
		bits := q.withoutClusters(p.bits).with(l.left)
		if l.allow || !bits.has(l.entered) {
			arrive(int(l.to), path{bits: bits})
		}
		return
	}
	if p.internal {
		if p.kind == limited && !l.mine {
			return
		}
		p.bits = p.bits.with(own)
	}
	if l.theirs && p.bits.has(q.cluster[l.to]) || p.bits.has(l.entered) && !l.allow {
		return
	}
	p.internal, p.kind = true, limited
	if l.theirs {
		p.kind = free
	}
	arrive(int(l.to), p)
}

// sendOut passes a path to the routers outside, if one of the sessions allows it.
func (q *quotient) sendOut(from int, p path, arrive func(int, path)) {
	for _, o := range q.out[from] {
		if !o.Internal || p.kind == free || o.client {
			arrive(q.outside, path{bits: make(set, len(p.bits))})
			return
		}
	}
}

// comeBack passes the paths known outside to every node that has a session with an outside router.
func (q *quotient) comeBack(p path, arrive func(int, path)) {
	for to := range q.size {
		for _, o := range q.out[to] {
			back := path{bits: p.bits, internal: o.Internal}
			if o.Internal && !o.client {
				back.kind = limited
			}
			arrive(to, back)
		}
	}
}
