package policy

import (
	"cmp"
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

// read converts the policies of a snapshot according to a profile.
func (m *Model) read(snapshot *cluster.Snapshot, profile Profile) *reading {
	r := &reading{profile: profile}
	switch profile.Dialect {
	case Kubernetes:
		r.tiers = []tier{{name: "default"}}
		m.networkPolicies(r, snapshot, 0)
	case Calico:
		m.readCalico(r, snapshot)
	case Cilium:
		r.tiers = []tier{{name: "default", denyFirst: true}}
		m.networkPolicies(r, snapshot, 0)
		m.readCilium(r, snapshot)
	}
	return r
}

// calicoOrder is the order that Calico gives to NetworkPolicies; it is irrelevant for other networks.
const calicoOrder = 1000

func (m *Model) networkPolicies(r *reading, snapshot *cluster.Snapshot, tier int) {
	for i := range snapshot.NetworkPolicies {
		if p := m.networkPolicy(&snapshot.NetworkPolicies[i], r.profile); p != nil {
			p.tier = tier
			r.policies = append(r.policies, p)
		}
	}
}

// networkPolicy converts a NetworkPolicy; nil if it is not enforced.
func (m *Model) networkPolicy(object *networkingv1.NetworkPolicy, profile Profile) *policy {
	k := kubernetes{m, profile, finding.Subject{Kind: "NetworkPolicy", Namespace: object.Namespace, Name: object.Name}}
	if profile.deviates(deviatesNamedPorts) && usesNames(object) {
		return nil
	}
	pods, err := k.podSet(object.Namespace, nil, &object.Spec.PodSelector)
	if err != nil {
		m.leftOut(k.ref, "its podSelector cannot be read, so it is left out: "+err.Error())
		return nil
	}
	p := &policy{ref: k.ref, order: calicoOrder, key: object.Namespace + "/knp.default." + object.Name, pods: pods}
	for _, direction := range typesOf(&object.Spec) {
		p.governs[direction], p.isolates[direction] = true, true
	}
	for _, rule := range object.Spec.Ingress {
		p.rules[Ingress] = append(p.rules[Ingress], k.rules(rule.From, rule.Ports)...)
	}
	for _, rule := range object.Spec.Egress {
		p.rules[Egress] = append(p.rules[Egress], k.rules(rule.To, rule.Ports)...)
	}
	return p
}

// typesOf returns the directions that a policy governs, with the API server's defaults.
func typesOf(spec *networkingv1.NetworkPolicySpec) []Direction {
	if len(spec.PolicyTypes) == 0 {
		if len(spec.Egress) > 0 {
			return []Direction{Ingress, Egress}
		}
		return []Direction{Ingress}
	}
	var found []Direction
	for _, t := range spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			found = append(found, Ingress)
		case networkingv1.PolicyTypeEgress:
			found = append(found, Egress)
		}
	}
	return found
}

func usesNames(object *networkingv1.NetworkPolicy) bool {
	named := func(ports []networkingv1.NetworkPolicyPort) bool {
		for _, port := range ports {
			if port.Port != nil && port.Port.Type == intstr.String {
				return true
			}
		}
		return false
	}
	for _, rule := range object.Spec.Ingress {
		if named(rule.Ports) {
			return true
		}
	}
	for _, rule := range object.Spec.Egress {
		if named(rule.Ports) {
			return true
		}
	}
	return false
}

// kubernetes reads one NetworkPolicy.
type kubernetes struct {
	*Model
	profile Profile
	ref     finding.Subject
}

// rules makes a rule for each peer, or one for all peers if there is none.
func (k kubernetes) rules(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) []rule {
	base := k.ports(ports)
	if len(peers) == 0 {
		return []rule{base}
	}
	var rules []rule
	for i := range peers {
		r := base
		switch peer := &peers[i]; {
		case peer.IPBlock != nil:
			k.block(&r, peer.IPBlock)
		default:
			namespace := k.ref.Namespace
			if peer.NamespaceSelector != nil {
				namespace = ""
			}
			pods, err := k.podSet(namespace, peer.NamespaceSelector, peer.PodSelector)
			if err != nil {
				k.leftOut(k.ref, "a peer's selector cannot be read: "+err.Error())
				continue
			}
			if k.profile.Dialect == Cilium && excludesOnly(peer) {
				pods = k.withoutNamespace(k.ref, k.profile, pods.key, pods.scope)
				r.deviation = cmp.Or(r.deviation, DeviatesExclusion)
			}
			r.peer.in = []*set{pods}
		}
		rules = append(rules, r)
	}
	return rules
}

// excludesOnly reports whether a peer's selectors also match what has no labels. An empty namespaceSelector does not:
// Cilium adds that there must be a namespace.
func excludesOnly(peer *networkingv1.NetworkPolicyPeer) bool {
	matches := func(from *metav1.LabelSelector) bool {
		parsed, err := metav1.LabelSelectorAsSelector(from)
		return err == nil && parsed.Matches(labels.Set{})
	}
	in := peer.NamespaceSelector
	return in != nil && len(in.MatchLabels)+len(in.MatchExpressions) > 0 && matches(in) &&
		(peer.PodSelector == nil || matches(peer.PodSelector))
}

func (k kubernetes) block(r *rule, block *networkingv1.IPBlock) {
	r.byAddress = true
	if k.profile.deviates(deviatesCIDR) {
		r.deviation = deviatesCIDR
		r.peer.in = []*set{k.outsideOf(block)}
		return
	}
	r.peer.nets = []*net{k.net(k.ref, block.CIDR)}
	if len(block.Except) > 0 {
		r.peer.notNets = []*net{k.net(k.ref, block.Except...)}
	}
}

// outsideOf is the addresses of a block, as far as they are outside of the cluster.
func (k kubernetes) outsideOf(block *networkingv1.IPBlock) *set {
	within, ok := parsePrefix(block.CIDR)
	if !ok {
		k.gap(k.ref, "the address range "+block.CIDR+" cannot be read")
		return k.nobody()
	}
	k.beyond = append(k.beyond, within)
	var except []netip.Prefix
	for _, text := range block.Except {
		if prefix, ok := parsePrefix(text); ok {
			k.beyond, except = append(k.beyond, prefix), append(except, prefix)
		}
	}
	s := k.set(fmt.Sprintf("block %v %v", within, except), scope{nobody: true})
	s.outside = func(a netip.Addr) match {
		if within.Contains(a) && !holds(except, a) {
			return yes
		}
		return no
	}
	return s
}

func (k kubernetes) ports(ports []networkingv1.NetworkPolicyPort) rule {
	if len(ports) == 0 {
		return rule{ports: allPorts}
	}
	var r rule
	for _, port := range ports {
		protocol := 0
		if port.Protocol != nil {
			protocol = protocolAt(*port.Protocol)
		}
		switch {
		case port.Port == nil:
			r.ports = r.ports.union(protocolPorts(protocol, firstPort, lastPort))
		case port.Port.Type == intstr.String:
			r.named = append(r.named, k.portName(protocol, port.Port.StrVal))
		default:
			first, last := port.Port.IntValue(), port.Port.IntValue()
			if port.EndPort != nil {
				last = int(*port.EndPort)
				if id := k.ignoresEndPort(); id != "" {
					r.deviation, last = id, first
				}
			}
			r.ports = r.ports.union(protocolPorts(protocol, first, last))
		}
	}
	return r
}

func (k kubernetes) ignoresEndPort() string {
	for _, id := range []string{deviatesEndPort, deviatesRange} {
		if k.profile.deviates(id) {
			return id
		}
	}
	return ""
}

func (m *Model) portName(protocol int, name string) namedPort {
	n := namedPort{protocol, name}
	m.portNames[n] = true
	return n
}

func (m *Model) nobody() *set { return m.set("nobody", scope{nobody: true}) }

// podSet is the set of pods of a namespace (or a namespace selector) and a pod selector.
func (m *Model) podSet(own string, namespaces, pods *metav1.LabelSelector) (*set, error) {
	s := scope{namespace: own}
	key := "k8s\x00" + own
	if namespaces != nil {
		selector, err := metav1.LabelSelectorAsSelector(namespaces)
		if err != nil {
			return nil, err
		}
		key += "\x00in\x00" + selector.String()
		if !selector.Empty() {
			s.inNamespace = remembered(func(n *namespace) bool { return selector.Matches(labels.Set(n.labels)) })
		}
	}
	if pods != nil {
		selector, err := metav1.LabelSelectorAsSelector(pods)
		if err != nil {
			return nil, err
		}
		key += "\x00pods\x00" + selector.String()
		if !selector.Empty() {
			s.pod = func(c *class) bool { return selector.Matches(labels.Set(c.labels)) }
			s.labels, s.label, s.values = labelsOf(selector)
		}
	}
	return m.set(key, s), nil
}

// remembered evaluates each namespace once, because many classes share a namespace.
func remembered(ask func(*namespace) bool) func(*namespace) bool {
	answers := map[*namespace]bool{}
	return func(n *namespace) bool {
		answer, known := answers[n]
		if !known {
			answer = ask(n)
			answers[n] = answer
		}
		return answer
	}
}

// labelsOf returns the labels that a selector uses, and one that it requires, with its values.
func labelsOf(selector labels.Selector) (keys []string, label string, values []string) {
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		keys = append(keys, r.Key())
		demands := r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals ||
			r.Operator() == selection.In
		if allowed := r.Values(); demands && (label == "" || allowed.Len() < len(values)) {
			label, values = r.Key(), allowed.UnsortedList()
		}
	}
	return keys, label, values
}
