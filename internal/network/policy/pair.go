package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// pair compares two endpoints: mine is the one that the subject's policies select. It returns the ports whose
// difference is not hidden by the other end's policies, and false if there are no two pods.
func (c *comparison) pair(s *subject, mine, e *endpoint, v [2]verdict, r *region) (seen spans, ok bool) {
	from, to := e, mine
	if s.direction == Egress {
		from, to = mine, e
	}
	flow, ok := c.podsOf(from, to)
	if !ok {
		return nil, false
	}
	other := c.subjectOf(e, s.direction.other())
	w := [2]verdict{{allPorts, allPorts}, {allPorts, allPorts}}
	if other != nil {
		for side := range w {
			w[side] = c.flow(Side(side), other.direction, e.class, mine).evaluate(other.policies[side], nil)
		}
	}
	causes := func() []cause {
		causes := c.causes(s, mine.class, e)
		if other != nil {
			causes = append(causes, c.causes(other, e.class, mine)...)
		}
		return causes
	}
	return c.show(s, r, flow, [2]verdict{v[Before].and(w[Before]), v[After].and(w[After])}, differing(v), causes), true
}

// show records what a pair shows of the ports that its policies decide differently, and returns those ports.
func (c *comparison) show(s *subject, r *region, flow Flow, v [2]verdict, here spans, why func() []cause) (seen spans) {
	for _, change := range changes() {
		ports := change.ports(v[Before], v[After]).intersect(here)
		if len(ports) == 0 {
			continue
		}
		seen = seen.union(ports)
		causes := why()
		for len(ports) > 0 {
			port := likely(ports, flow.To)
			flow.Port = portOf(port)
			witness := Witness{flow, v[Before].at(port), v[After].at(port)}
			alike := ports
			for _, cause := range causes {
				alike = cause.alike(alike, port)
			}
			c.record(s, change, alike, r, causes, port, witness)
			ports = ports.subtract(alike)
		}
	}
	return seen
}

// differing returns the ports whose verdicts differ.
func differing(v [2]verdict) spans {
	var ports spans
	for _, change := range changes() {
		ports = ports.union(change.ports(v[Before], v[After]))
	}
	return ports
}

// podsOf picks two pods; if one is a hostNetwork pod, on different nodes: ownNode compares what pods exchange with
// their own nodes.
func (m *Model) podsOf(from, to *endpoint) (Flow, bool) {
	otherNode := from.class == nil || to.class == nil
	for _, i := range from.pods {
		for _, j := range to.pods {
			a, b := m.pods[i], m.pods[j]
			if i != j && !(otherNode && a.Spec.NodeName == b.Spec.NodeName) {
				return Flow{From: a, To: b}, true
			}
		}
	}
	return Flow{}, false
}

// likely returns the most useful port of a set to probe: one that the pod declares, a common one, or the first.
func likely(ports spans, pod *corev1.Pod) uint32 {
	for i := range pod.Spec.Containers {
		for _, declared := range pod.Spec.Containers[i].Ports {
			protocol := max(protocolAt(declared.Protocol), 0)
			if code := uint32(protocol)<<16 | uint32(declared.ContainerPort); ports.contains(code) {
				return code
			}
		}
	}
	for _, usual := range []Port{{corev1.ProtocolTCP, 80}, {corev1.ProtocolTCP, 443}, {corev1.ProtocolTCP, 8080},
		{corev1.ProtocolUDP, 53}} {
		if ports.contains(usual.code()) {
			return usual.code()
		}
	}
	return ports[0].first
}

// cause is how one end's policies decided, under both profiles.
type cause struct {
	subject  *subject
	outcomes [2][]outcome
	differs  spans
}

// causes returns the cause of a subject, or none if it decides the same under both profiles.
func (c *comparison) causes(s *subject, class *class, other *endpoint) []cause {
	found := cause{subject: s}
	var v [2]verdict
	for side := range v {
		v[side] = c.flow(Side(side), s.direction, class, other).evaluate(s.policies[side], func(o outcome) {
			found.outcomes[side] = append(found.outcomes[side], o)
		})
	}
	if found.differs = differing(v); len(found.differs) == 0 {
		return nil
	}
	return []cause{found}
}

// alike returns the ports with the same decision as a given one.
func (c cause) alike(ports spans, port uint32) spans {
	narrow := func(to spans) {
		if to.contains(port) {
			ports = ports.intersect(to)
		} else {
			ports = ports.subtract(to)
		}
	}
	narrow(c.differs)
	for _, outcomes := range c.outcomes {
		for _, o := range outcomes {
			narrow(o.ports)
		}
	}
	return ports
}

// blame names the policies that cause the difference at a port: those enforced on one side only, if there are any, else
// those whose rules decided, else those that deny by default.
func (c cause) blame(port uint32) []blamed {
	var only, byRule, rest []blamed
	for side, outcomes := range c.outcomes {
		for _, o := range outcomes {
			if !o.ports.contains(port) {
				continue
			}
			for _, p := range o.by {
				b := blamed{policy: p, only: Both}
				switch {
				case !inForce(c.subject.policies[1-side], p):
					b.only = Side(side)
					only = append(only, b)
				case o.rule != nil:
					byRule = append(byRule, b)
				default:
					rest = append(rest, b)
				}
			}
		}
	}
	for _, found := range [][]blamed{only, byRule} {
		if len(found) > 0 {
			return found
		}
	}
	return rest
}

type blamed struct {
	*policy
	only Side
}

func inForce(policies []*policy, p *policy) bool {
	return slices.ContainsFunc(policies, func(other *policy) bool { return other.ref == p.ref })
}
