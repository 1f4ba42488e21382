package policy

import "slices"

// verdict has the open ports: may has those that are or might be open, must those that certainly are.
type verdict struct{ may, must spans }

func (v verdict) and(other verdict) verdict {
	return verdict{v.may.intersect(other.may), v.must.intersect(other.must)}
}

// outcome is a decision and the ports to which it applies (or may apply).
type outcome struct {
	ports spans
	// by are the policies that decided: the one whose rule matched, or, at the end of a tier, all of the tier.
	by   []*policy
	rule *rule // nil at the end of a tier
}

// flow is one direction of one connection: the pod to which policies apply, and the other end. Without another end it
// stands for any peer: rules that may match do match.
type flow struct {
	model     *Model
	side      Side
	direction Direction
	subject   *class
	other     *endpoint
	// own is true if the other end is the subject's own node.
	own bool
	// names are the named ports of the pod that listens.
	names map[namedPort]spans
}

func (m *Model) flow(side Side, direction Direction, subject *class, other *endpoint) flow {
	f := flow{model: m, side: side, direction: direction, subject: subject, other: other, names: subject.names}
	if direction == Egress {
		f.names = nil
		if other != nil && other.class != nil {
			f.names = other.class.names
		}
	}
	return f
}

// evaluate evaluates all ports at once. policies are those that select the subject, in order of evaluation; note is
// called for each decision, and may be nil.
func (f flow) evaluate(policies []*policy, note func(outcome)) verdict {
	if note == nil {
		note = func(outcome) {}
	}
	open := allPorts
	var opened, denied spans
	for len(policies) > 0 && len(open) > 0 {
		n := 1
		for n < len(policies) && policies[n].tier == policies[0].tier {
			n++
		}
		var passed spans
		t := f.model.readings[f.side].tiers[policies[0].tier]
		f.rules(policies[:n], t, &open, func(r *rule, by *policy, ports spans) {
			switch r.action {
			case allow:
				opened = opened.union(ports)
			case deny:
				denied = denied.union(ports)
			case pass:
				passed = passed.union(ports)
				return
			}
			note(outcome{ports: ports, by: []*policy{by}, rule: r})
		})
		switch isolating := f.isolating(policies[:n]); {
		case t.passes || len(isolating) == 0:
			passed = passed.union(open)
		case len(open) > 0:
			denied = denied.union(open)
			note(outcome{ports: open, by: isolating})
		}
		open, policies = passed, policies[n:]
	}
	opened = opened.union(open)
	return verdict{may: opened, must: opened.subtract(denied)}
}

// rules evaluates the rules of a tier until all ports are decided.
func (f flow) rules(policies []*policy, t tier, open *spans, hit func(*rule, *policy, spans)) {
	walk := func(wanted func(action) bool) {
		for _, p := range policies {
			for i := range p.rules[f.direction] {
				r := &p.rules[f.direction][i]
				if len(*open) == 0 {
					return
				}
				if !wanted(r.action) {
					continue
				}
				matched := f.matches(r)
				if matched == no {
					continue
				}
				ports := *open
				if f.other != nil || !r.byName() {
					ports = open.intersect(r.portsFor(f.names))
				}
				if len(ports) == 0 {
					continue
				}
				hit(r, p, ports)
				if matched == yes {
					*open = open.subtract(ports)
				}
			}
		}
	}
	if !t.denyFirst {
		walk(func(action) bool { return true })
		return
	}
	walk(func(a action) bool { return a == deny })
	walk(func(a action) bool { return a != deny })
}

func (f flow) isolating(policies []*policy) []*policy {
	var found []*policy
	if f.own && f.direction == Ingress {
		return nil // Cilium adds a rule that lets it in
	}
	for _, p := range policies {
		if p.isolates[f.direction] {
			found = append(found, p)
		}
	}
	return found
}

// matches reports whether a rule matches the other end, regardless of ports.
func (f flow) matches(r *rule) match {
	matched := f.peer(&r.peer)
	if matched != no && !r.self.anybody() {
		matched = min(matched, f.itself(&r.self))
	}
	if matched == yes && r.unsure {
		return maybe
	}
	return matched
}

func (f flow) peer(p *peer) match {
	if f.other == nil {
		return f.anybody(p)
	}
	matched := yes
	for _, s := range p.in {
		matched = min(matched, f.has(s))
	}
	for _, s := range p.out {
		matched = min(matched, f.has(s).not())
	}
	if matched == no || len(p.nets) == 0 && len(p.notNets) == 0 {
		return matched
	}
	address := f.other.address(f.side, f.direction)
	for _, n := range p.nets {
		matched = min(matched, address.overlap(n.ranges))
	}
	for _, n := range p.notNets {
		matched = min(matched, address.overlap(n.ranges).not())
	}
	return matched
}

// has reports whether the other end is in a set.
func (f flow) has(s *set) match {
	if f.own {
		return s.own
	}
	return s.has(f.other)
}

// anybody reports whether any peer could match the rule.
func (f flow) anybody(p *peer) match {
	if slices.ContainsFunc(p.in, (*set).empty) {
		return no
	}
	return maybe
}

// itself matches the pod to which the policy applies. If the pods of its class have different addresses, a rule with
// addresses may match.
func (f flow) itself(p *peer) match {
	matched := yes
	for _, s := range p.in {
		matched = min(matched, s.hasClass(f.subject))
	}
	for _, s := range p.out {
		matched = min(matched, s.hasClass(f.subject).not())
	}
	if matched == no || !p.byAddress() {
		return matched
	}
	least, most := match(yes), match(no)
	for _, e := range f.subject.endpoints {
		address, one := e.address(f.side, f.direction.other()), match(yes)
		for _, n := range p.nets {
			one = min(one, address.overlap(n.ranges))
		}
		for _, n := range p.notNets {
			one = min(one, address.overlap(n.ranges).not())
		}
		least, most = min(least, one), max(most, one)
	}
	if least != most {
		return maybe
	}
	return min(matched, least)
}
