package policy

// nodes are hostNetwork pods whose addresses no policy can distinguish, and one of them by node.
type nodes struct {
	*endpoint
	on   map[string]int32
	most int // on one node
}

func (m *Model) nodes() (all []nodes) {
	for _, e := range m.endpoints {
		if e.class != nil {
			continue
		}
		n, count := nodes{e, map[string]int32{}, 0}, map[string]int{}
		for _, i := range e.pods {
			name := m.pods[i].Spec.NodeName
			n.on[name] = i
			count[name]++
			n.most = max(n.most, count[name])
		}
		all = append(all, n)
	}
	return all
}

// withOwnNode is the verdict on what a pod sends to its own node, or gets from it. The documentation of NetworkPolicy
// says that it is always allowed, but most networks let egress policies decide, and Cilium also lets ingress policies
// deny it in so many words.
func (m *Model) withOwnNode(side Side, direction Direction, pod *class, node *endpoint, note func(outcome)) verdict {
	profile := m.readings[side].profile
	if profile.freeOwnNode() != "" || direction == Ingress && profile.Dialect != Cilium {
		return verdict{allPorts, allPorts}
	}
	f := m.flow(side, direction, pod, node)
	f.own = true
	return f.evaluate(m.readings[side].selecting[direction][pod.index], note)
}

// ownNode compares what a subject's pods may send to their own nodes, or get from them.
func (c *comparison) ownNode(s *subject, n nodes) {
	found := cause{subject: s}
	r := &region{own: n.most}
	var v [2]verdict
	for side := range v {
		v[side] = c.withOwnNode(Side(side), s.direction, s.classes[0], n.endpoint, func(o outcome) {
			found.outcomes[side] = append(found.outcomes[side], o)
		})
		if id := c.readings[side].profile.freeOwnNode(); id != "" && s.direction == Egress {
			r.deviations = append(r.deviations, id)
		}
	}
	if found.differs = differing(v); len(found.differs) == 0 {
		return
	}
	for _, class := range s.classes {
		for _, mine := range class.endpoints {
			for _, i := range mine.pods {
				j, ok := n.on[c.pods[i].Spec.NodeName]
				if !ok {
					continue
				}
				flow := Flow{From: c.pods[i], To: c.pods[j]}
				if s.direction == Ingress {
					flow.From, flow.To = flow.To, flow.From
				}
				c.show(s, r, flow, v, found.differs, func() []cause { return []cause{found} })
				return
			}
		}
	}
}
