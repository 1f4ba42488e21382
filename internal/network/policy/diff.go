package policy

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

// Verdict is the decision of policies about a connection.
type Verdict string

// Depends is a verdict that depends on unknown facts: an address that is not allocated yet, or a gap.
const (
	Allow   Verdict = "allow"
	Deny    Verdict = "deny"
	Depends Verdict = "depends"
)

func (v verdict) at(port uint32) Verdict {
	switch {
	case v.must.contains(port):
		return Allow
	case v.may.contains(port):
		return Depends
	}
	return Deny
}

// Change is the change of a verdict.
type Change string

// The changes. May is for verdicts that are Depends under one of the profiles.
const (
	Closes   Change = "closes"
	Opens    Change = "opens"
	MayClose Change = "may close"
	MayOpen  Change = "may open"
)

func changes() []Change { return []Change{Closes, Opens, MayClose, MayOpen} }

// ports returns the ports of a change from one verdict to another.
func (c Change) ports(before, after verdict) spans {
	depends := func(v verdict) spans { return v.may.subtract(v.must) }
	denied := func(v verdict) spans { return allPorts.subtract(v.may) }
	switch c {
	case Closes:
		return before.must.intersect(denied(after))
	case Opens:
		return denied(before).intersect(after.must)
	case MayClose:
		return before.must.intersect(depends(after)).union(depends(before).intersect(denied(after)))
	default:
		return denied(before).intersect(depends(after)).union(depends(before).intersect(after.must))
	}
}

// Flow is a connection from a pod to a port of another.
type Flow struct {
	From, To *corev1.Pod
	Port     Port
}

// Witness is a flow whose verdict differs between the profiles.
type Witness struct {
	Flow
	Before, After Verdict
}

// Difference is an effect of one policy on pods under only one of the profiles.
type Difference struct {
	Policy    finding.Subject
	Direction Direction
	Change    Change
	// Only is the side on which the policy is enforced for these pods, else Both.
	Only Side
	// Deviations are the IDs of the deviations that affect the policy; Addresses is true if the policy has address
	// ranges and the pods get other addresses.
	Deviations []string
	Addresses  bool
	// Pods is the number of the policy's pods that are affected, Peers the maximum number of their peers; Ports are the
	// widest set of ports.
	Pods, Peers int
	Ports       Ports
	Witness     Witness
}

type differenceKey struct {
	policy    finding.Subject
	direction Direction
	change    Change
	only      Side
}

// Differences compares the profiles over all pairs of pods and all ports. It does not enumerate pairs: it groups pods
// by the properties that policies can distinguish.
func (m *Model) Differences() []Difference {
	m.compare()
	return m.differences
}

// comparison is the state of one call of compare.
type comparison struct {
	*Model
	subjects [2][]*subject
	of       [2][]*subject
	// others are all endpoints, grouped by the subjects of a direction.
	others  [2][][]*endpoint
	at      map[differenceKey]int
	found   []Difference
	counted map[differenceKey]*count
	nodes   []nodes
	tries   []try
}

// try is a pair of pods that shows differences: a candidate for a probe.
type try struct {
	witness Witness
	shows   []differenceKey
}

// count is the last subject that a difference counted, and that subject's regions, which do not overlap.
type count struct {
	subject *subject
	region  *region
	peers   int
}

// witnesses is the number of pairs kept as candidates for probes, for each region that differs.
const witnesses = 4

func (m *Model) compare() {
	if m.compared {
		return
	}
	m.compared = true
	c := comparison{Model: m, at: map[differenceKey]int{}, counted: map[differenceKey]*count{}}
	for d := range c.subjects {
		c.subjects[d], c.of[d] = m.subjects(Direction(d))
		c.others[d] = c.bySubject(m.endpoints, Direction(d))
		for _, s := range c.subjects[d] {
			s.most = c.most(s)
		}
	}
	c.nodes = m.nodes()
	for _, subjects := range c.subjects {
		for _, s := range subjects {
			if len(s.policies[Before])+len(s.policies[After]) > 0 {
				c.subject(s)
			}
		}
	}
	c.finish()
}

// most returns the ports that a subject's policies open to any peer, under either profile.
func (c *comparison) most(s *subject) spans {
	var most spans
	for side, policies := range s.policies {
		most = most.union(c.flow(Side(side), s.direction, s.classes[0], nil).evaluate(policies, nil).may)
	}
	return most
}

// subject compares one subject, region by region.
func (c *comparison) subject(s *subject) {
	for _, r := range c.regions(s) {
		var v [2]verdict
		for side := range v {
			v[side] = c.flow(Side(side), s.direction, s.classes[0], r.first).evaluate(s.policies[side], nil)
		}
		for _, change := range changes() {
			if len(change.ports(v[Before], v[After])) > 0 {
				c.region(s, r, v)
				break
			}
		}
	}
	for _, n := range c.nodes {
		c.ownNode(s, n)
	}
}

// region looks for pairs of pods that show the difference: the policies of the other end may hide it.
func (c *comparison) region(s *subject, r *region, v [2]verdict) {
	others := c.others[s.direction.other()]
	if !r.rest {
		others = c.bySubject(r.members, s.direction.other())
	}
	// hidden are the ports whose difference no pair has shown yet. When none is left, it tries some more pairs,
	// because a pair that also shows other differences makes a good probe.
	here := differing(v)
	hidden, found := here, 0
	for _, class := range s.classes {
		for _, mine := range class.endpoints {
			for _, alike := range others {
				wanted := hidden
				if found < witnesses {
					wanted = here
				}
				if len(wanted) == 0 {
					return
				}
				if other := c.subjectOf(alike[0], s.direction.other()); other != nil &&
					len(other.most.intersect(wanted)) == 0 {
					continue
				}
				if shown := c.sample(s, mine, alike, r, v); len(shown) > 0 {
					found++
					hidden = hidden.subtract(shown)
				}
			}
		}
	}
}

// sample tries one pair with the endpoints that the other end's policies cannot tell apart.
func (c *comparison) sample(s *subject, mine *endpoint, alike []*endpoint, r *region, v [2]verdict) spans {
	for _, e := range alike {
		if r.rest && r.holdsNamed(e) {
			continue
		}
		if shown, ok := c.pair(s, mine, e, v, r); ok {
			return shown
		}
	}
	return nil
}

// bySubject groups endpoints by the policies that select them in a direction, in their order.
func (c *comparison) bySubject(endpoints []*endpoint, direction Direction) [][]*endpoint {
	at := map[*subject]int{}
	var groups [][]*endpoint
	for _, e := range endpoints {
		s := c.subjectOf(e, direction)
		i, known := at[s]
		if !known {
			i = len(groups)
			at[s] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], e)
	}
	return groups
}

// subjectOf returns an endpoint's subject; nil for hostNetwork pods.
func (c *comparison) subjectOf(e *endpoint, direction Direction) *subject {
	if e.class == nil {
		return nil
	}
	return c.of[direction][e.class.index]
}

// record adds a difference, or more evidence to a known one, and a candidate for a probe. The differences of the other
// end's policies are recorded separately.
func (c *comparison) record(s *subject, change Change, ports spans, r *region, causes []cause,
	port uint32, witness Witness) {
	t := try{witness: witness}
	for _, cause := range causes {
		if !cause.differs.contains(port) {
			continue
		}
		for _, b := range cause.blame(port) {
			key := differenceKey{b.ref, cause.subject.direction, change, b.only}
			t.shows = append(t.shows, key)
			if cause.subject != s {
				continue
			}
			i, known := c.at[key]
			if !known {
				i = len(c.found)
				c.at[key] = i
				c.found = append(c.found,
					Difference{Policy: b.ref, Direction: key.direction, Change: change, Only: b.only, Witness: witness})
			}
			c.widen(&c.found[i], s, ports, r, b)
		}
	}
	c.tries = append(c.tries, t)
}

func (c *comparison) widen(d *Difference, s *subject, ports spans, r *region, b blamed) {
	d.Ports.set = d.Ports.set.union(ports)
	key := differenceKey{d.Policy, d.Direction, d.Change, d.Only}
	counted := c.counted[key]
	if counted == nil {
		counted = &count{}
		c.counted[key] = counted
	}
	known := counted.subject == s
	if !known {
		*counted = count{subject: s}
	}
	if counted.region != r {
		counted.region, counted.peers = r, counted.peers+r.pods
		d.Peers = max(d.Peers, counted.peers, r.own)
	}
	for _, id := range r.deviations {
		if !slices.Contains(d.Deviations, id) {
			d.Deviations = append(d.Deviations, id)
		}
	}
	if known {
		return
	}
	for _, class := range s.classes {
		for _, e := range class.endpoints {
			d.Pods += len(e.pods)
		}
	}
	for side := range s.policies {
		for _, p := range s.policies[side] {
			if p.ref != b.ref {
				continue
			}
			for i := range p.rules[s.direction] {
				r := &p.rules[s.direction][i]
				d.Addresses = d.Addresses || r.byAddress
				if r.deviation != "" && !slices.Contains(d.Deviations, r.deviation) {
					d.Deviations = append(d.Deviations, r.deviation)
				}
			}
		}
	}
}

// finish sorts the results.
func (c *comparison) finish() {
	order := make([]int, len(c.found))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return compareDifferences(&c.found[i], &c.found[j]) })
	to := make([]int, len(order))
	for i, from := range order {
		to[from] = i
		c.differences = append(c.differences, c.found[from])
	}
	for _, t := range c.tries {
		p := Probe{Witness: t.witness}
		for _, key := range t.shows {
			if i, ok := c.at[key]; ok && !slices.Contains(p.Shows, to[i]) {
				p.Shows = append(p.Shows, to[i])
			}
		}
		slices.Sort(p.Shows)
		c.candidates = append(c.candidates, p)
	}
}

func compareDifferences(a, b *Difference) int {
	return cmp.Or(compareSubjects(a.Policy, b.Policy), cmp.Compare(a.Direction, b.Direction),
		cmp.Compare(a.Change, b.Change), cmp.Compare(a.Only, b.Only))
}
