package policy

import (
	"encoding/binary"
	"slices"
)

// subject is a set of classes that the same policies select in one direction, under both profiles, and for which their
// rules are equivalent.
type subject struct {
	direction Direction
	policies  [2][]*policy
	classes   []*class
	// most are the ports that its policies open to any peer.
	most spans
}

// subjects groups the classes of a direction into subjects.
func (m *Model) subjects(direction Direction) (all []*subject, of []*subject) {
	ids := map[*policy]uint32{}
	for _, r := range m.readings {
		for _, p := range r.policies {
			ids[p] = uint32(len(ids))
		}
	}
	groups := map[string]*subject{}
	of = make([]*subject, len(m.classes))
	var key []byte
	for i, c := range m.classes {
		key = key[:0]
		var byName bool
		for side, r := range m.readings {
			key = append(key, 0xff, 0xff, 0xff, 0xff)
			for _, p := range r.selecting[direction][i] {
				id := ids[p]
				key = binary.BigEndian.AppendUint32(key, id)
				key, byName = m.selfKey(key, p, c, Side(side), direction, byName)
			}
		}
		if byName && direction == Ingress {
			key = appendNames(key, c.names)
		}
		s := groups[string(key)]
		if s == nil {
			s = &subject{direction: direction, policies: [2][]*policy{
				m.readings[Before].selecting[direction][i], m.readings[After].selecting[direction][i]}}
			groups[string(key)] = s
			all = append(all, s)
		}
		s.classes = append(s.classes, c)
		of[i] = s
	}
	return all, of
}

// selfKey appends the parts of a policy's rules that depend on the class itself.
func (m *Model) selfKey(key []byte, p *policy, c *class, side Side, direction Direction, byName bool) ([]byte, bool) {
	for i := range p.rules[direction] {
		r := &p.rules[direction][i]
		byName = byName || r.byName()
		if !r.self.anybody() {
			key = append(key, byte(flow{model: m, side: side, direction: direction, subject: c}.itself(&r.self)))
		}
	}
	return key, byName
}

// region is a set of endpoints that a subject's rules cannot distinguish.
type region struct {
	// first represents all of them.
	first   *endpoint
	members []*endpoint
	// rest is true for the endpoints that no rule names; then members is empty, and named has all others.
	rest  bool
	named map[int32]int32
	// pods is the number of its pods.
	pods int
	// own is the most hostNetwork pods on one node, and deviations affect it, if the pods' own nodes are the region.
	own        int
	deviations []string
}

// holdsNamed reports whether an endpoint is not in the rest.
func (r *region) holdsNamed(e *endpoint) bool {
	_, named := r.named[e.index]
	return named
}

// regions divides all endpoints by the questions of a subject's rules about the other end. The work depends on the
// number of endpoints with unusual answers, not on the number of all endpoints.
func (m *Model) regions(s *subject) []*region {
	type cut struct {
		from     int32
		question int
		answer   match
	}
	at := map[int32]int32{} // region of each endpoint that is not in the rest, which is region 0
	var order []int32
	cuts := map[cut]int32{}
	count := int32(1)
	for q, question := range m.questions(s) {
		for _, e := range question.except {
			from, known := at[e.endpoint]
			if !known {
				order = append(order, e.endpoint)
			}
			key := cut{from, q, e.answer}
			to, known := cuts[key]
			if !known {
				to = count
				cuts[key] = to
				count++
			}
			at[e.endpoint] = to
		}
	}
	found := make([]*region, count)
	rest := &region{rest: true, named: at, pods: len(m.pods)}
	for _, e := range order {
		i := at[e]
		if found[i] == nil {
			found[i] = &region{first: m.endpoints[e]}
		}
		found[i].members = append(found[i].members, m.endpoints[e])
		found[i].pods += len(m.endpoints[e].pods)
		rest.pods -= len(m.endpoints[e].pods)
	}
	var regions []*region
	for _, r := range found[1:] {
		if r != nil {
			regions = append(regions, r)
		}
	}
	if len(order) < len(m.endpoints) {
		rest.first = m.endpoints[slices.IndexFunc(m.endpoints, func(e *endpoint) bool { return !rest.holdsNamed(e) })]
		regions = append(regions, rest)
	}
	return regions
}

// questions returns the distinct questions of a subject's rules about the other end.
func (m *Model) questions(s *subject) []*split {
	asked := map[*split]bool{}
	var all []*split
	ask := func(q *split) {
		if !asked[q] && len(q.except) > 0 {
			asked[q] = true
			all = append(all, q)
		}
	}
	named := false
	for side, policies := range s.policies {
		for _, p := range policies {
			for i := range p.rules[s.direction] {
				r := &p.rules[s.direction][i]
				named = named || r.byName()
				for _, sets := range [][]*set{r.peer.in, r.peer.out} {
					for _, set := range sets {
						ask(m.askSet(set))
					}
				}
				for _, nets := range [][]*net{r.peer.nets, r.peer.notNets} {
					for _, n := range nets {
						ask(m.askNet(n, Side(side), s.direction))
					}
				}
			}
		}
	}
	if named && s.direction == Egress {
		all = append(all, m.askNames()...)
	}
	return all
}

// askSet answers which endpoints are in a set. The members are known, so a small set is cheap.
func (m *Model) askSet(s *set) *split {
	if s.asked != nil {
		return s.asked
	}
	var members []exception
	for _, c := range s.classes {
		for _, e := range m.classes[c].endpoints {
			members = append(members, exception{e.index, yes})
		}
	}
	if s.hosts == no && len(members) <= len(m.endpoints)/2 {
		s.asked = &split{usual: no, except: members}
		return s.asked
	}
	s.asked = &split{usual: yes}
	for _, e := range m.endpoints {
		if answer := s.has(e); answer != yes {
			s.asked.except = append(s.asked.except, exception{e.index, answer})
		}
	}
	return s.asked
}

// neighbours are endpoints of one address.
type neighbours struct {
	address   spans
	endpoints []*endpoint
}

// askNet checks each address once, because many endpoints share few addresses.
func (m *Model) askNet(n *net, side Side, direction Direction) *split {
	if n.asked[side][direction] != nil {
		return n.asked[side][direction]
	}
	groups := m.neighbours(side, direction)
	var counts [yes + 1]int
	answers := make([]match, len(groups))
	for i, g := range groups {
		answers[i] = g.address.overlap(n.ranges)
		counts[answers[i]] += len(g.endpoints)
	}
	q := &split{usual: no}
	for a := range counts {
		if counts[a] > counts[q.usual] {
			q.usual = match(a)
		}
	}
	for i, g := range groups {
		if answers[i] == q.usual {
			continue
		}
		for _, e := range g.endpoints {
			q.except = append(q.except, exception{e.index, answers[i]})
		}
	}
	n.asked[side][direction] = q
	return q
}

func (m *Model) neighbours(side Side, direction Direction) []neighbours {
	if m.byAddress[side][direction] != nil {
		return m.byAddress[side][direction]
	}
	at := map[string]int{}
	var groups []neighbours
	for _, e := range m.endpoints {
		address := e.address(side, direction)
		key := string(appendSpans(nil, address))
		i, known := at[key]
		if !known {
			i = len(groups)
			at[key] = i
			groups = append(groups, neighbours{address: address})
		}
		groups[i].endpoints = append(groups[i].endpoints, e)
	}
	m.byAddress[side][direction] = groups
	return groups
}

// askNames distinguishes endpoints by their named ports.
func (m *Model) askNames() []*split {
	if m.byNames != nil {
		return m.byNames
	}
	groups := map[string]*split{}
	for _, e := range m.endpoints {
		if e.class == nil || len(e.class.names) == 0 {
			continue
		}
		key := string(appendNames(nil, e.class.names))
		if groups[key] == nil {
			groups[key] = &split{usual: no}
			m.byNames = append(m.byNames, groups[key])
		}
		groups[key].except = append(groups[key].except, exception{e.index, yes})
	}
	return m.byNames
}
