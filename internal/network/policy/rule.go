package policy

import "github.com/theseus-cni/theseus/internal/cluster/finding"

// match is an answer that may be unknown: an address that is not given out yet, a feature that is not modelled.
type match int8

const (
	no match = iota
	maybe
	yes
)

func (m match) not() match { return yes - m }

// Direction is the side of a connection that a policy is about.
type Direction int

// Ingress is what a pod takes, Egress what it opens.
const (
	Ingress Direction = iota
	Egress
)

func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}

func (d Direction) other() Direction { return Egress - d }

type action int8

const (
	allow action = iota
	deny
	pass // on to the next tier
)

// policy is any dialect's policy in the form that is evaluated.
type policy struct {
	ref  finding.Subject
	tier int // index into the tiers of its reading
	// order and key sort policies within a tier.
	order float64
	key   string
	// pods are those that it is about.
	pods *set
	// rules and governs go by Direction. A policy that governs a direction isolates in it too, unless it says
	// otherwise: what no rule takes is then denied at the end of its tier.
	rules    [2][]rule
	governs  [2]bool
	isolates [2]bool
}

// rule is one line of a policy: the first that matches decides.
type rule struct {
	action action
	peer   peer
	// self is what the rule says of the pod that the policy is about; hardly ever anything.
	self peer
	// ports are numbers; named are looked up on the pod that listens.
	ports spans
	named []namedPort
	// notPorts and notNamed are taken out.
	notPorts spans
	notNamed []namedPort
	// unsure is true when a part of the rule is not modelled: where the rest matches, the rule may.
	unsure bool
	// deviation is the ID of the deviation that the rule is read by, where there is one.
	deviation string
	// byAddress is true when the rule names address ranges.
	byAddress bool
}

type namedPort struct {
	protocol int
	name     string
}

// peer is the other end of a connection, as a rule describes it: all of what it says must hold. The zero
// value is everybody.
type peer struct {
	in, out       []*set
	nets, notNets []*net
}

func (p peer) anybody() bool {
	return len(p.in) == 0 && len(p.out) == 0 && len(p.nets) == 0 && len(p.notNets) == 0
}

// tier is a row of policies that is evaluated as one.
type tier struct {
	name string
	// passes is true when what no rule takes goes on to the next tier, instead of being denied.
	passes bool
	// denyFirst is true when the rules that deny come before all others, whatever their order.
	denyFirst bool
}

// portsFor are the rule's ports on a pod that listens; nil names stand for a pod that has none.
func (r *rule) portsFor(names map[namedPort]spans) spans {
	ports := r.ports
	for _, name := range r.named {
		ports = ports.union(names[name])
	}
	ports = ports.subtract(r.notPorts)
	for _, name := range r.notNamed {
		ports = ports.subtract(names[name])
	}
	return ports
}

func (r *rule) byName() bool { return len(r.named) > 0 || len(r.notNamed) > 0 }
