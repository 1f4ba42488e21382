package policy

import "github.com/theseus-cni/theseus/internal/cluster/finding"

// match is an answer that may be unknown: because an address is not allocated yet, or a feature is not modelled.
type match int8

const (
	no match = iota
	maybe
	yes
)

func (m match) not() match { return yes - m }

// Direction is the side of a connection to which a policy applies.
type Direction int

// Ingress is for connections to a pod, Egress for connections from it.
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

// policy is a policy of any dialect, in the form for evaluation.
type policy struct {
	ref  finding.Subject
	tier int // index into the tiers of its reading
	// order and key sort policies within a tier.
	order float64
	key   string
	// pods are the pods to which it applies.
	pods *set
	// rules and governs are indexed by Direction. A policy that governs a direction also isolates in it, unless it says
	// otherwise: traffic that no rule matches is denied at the end of its tier.
	rules    [2][]rule
	governs  [2]bool
	isolates [2]bool
}

// rule is one rule of a policy: the first that matches decides.
type rule struct {
	action action
	peer   peer
	// self is the rule's condition on the pod to which the policy applies; usually empty.
	self peer
	// ports are numbers; named ports are looked up on the listening pod.
	ports spans
	named []namedPort
	// notPorts and notNamed are excluded.
	notPorts spans
	notNamed []namedPort
	// unsure is true if a part of the rule is not modelled: if the rest matches, the rule may match.
	unsure bool
	// deviation is the ID of the deviation that affects the rule, if there is one.
	deviation string
	// byAddress is true if the rule has address ranges.
	byAddress bool
}

type namedPort struct {
	protocol int
	name     string
}

// peer is a rule's description of the other end of a connection: all conditions must hold. The zero value matches any
// peer.
type peer struct {
	in, out       []*set
	nets, notNets []*net
}

func (p peer) anybody() bool {
	return len(p.in) == 0 && len(p.out) == 0 && len(p.nets) == 0 && len(p.notNets) == 0
}

func (p peer) byAddress() bool { return len(p.nets)+len(p.notNets) > 0 }

// tier is a list of policies that are evaluated together.
type tier struct {
	name string
	// passes is true if traffic that no rule matches is passed to the next tier instead of denied.
	passes bool
	// denyFirst is true if deny rules precede all others, whatever their order.
	denyFirst bool
}

// portsFor returns the rule's ports on a listening pod; nil names mean a pod without named ports.
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
