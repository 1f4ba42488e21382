package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

const ciliumGroup = "cilium.io"

// ciliumSpec is the part of Cilium(Clusterwide)NetworkPolicy that affects verdicts: pkg/policy/api of Cilium v1.18.
type ciliumSpec struct {
	EndpointSelector  *metav1.LabelSelector `json:"endpointSelector"`
	NodeSelector      *metav1.LabelSelector `json:"nodeSelector"`
	Ingress           []ciliumRule          `json:"ingress"`
	IngressDeny       []ciliumRule          `json:"ingressDeny"`
	Egress            []ciliumRule          `json:"egress"`
	EgressDeny        []ciliumRule          `json:"egressDeny"`
	EnableDefaultDeny struct {
		Ingress *bool `json:"ingress"`
		Egress  *bool `json:"egress"`
	} `json:"enableDefaultDeny"`
}

// ciliumRule is a rule of either direction: from and to are parsed in the same way. An empty list selects nothing, a
// missing list is no restriction.
type ciliumRule struct {
	FromEndpoints []metav1.LabelSelector `json:"fromEndpoints"`
	ToEndpoints   []metav1.LabelSelector `json:"toEndpoints"`
	FromRequires  []metav1.LabelSelector `json:"fromRequires"`
	ToRequires    []metav1.LabelSelector `json:"toRequires"`
	FromCIDR      []string               `json:"fromCIDR"`
	ToCIDR        []string               `json:"toCIDR"`
	FromCIDRSet   []json.RawMessage      `json:"fromCIDRSet"`
	ToCIDRSet     []json.RawMessage      `json:"toCIDRSet"`
	FromEntities  []string               `json:"fromEntities"`
	ToEntities    []string               `json:"toEntities"`
	FromGroups    []json.RawMessage      `json:"fromGroups"`
	ToGroups      []json.RawMessage      `json:"toGroups"`
	FromNodes     []json.RawMessage      `json:"fromNodes"`
	ToNodes       []json.RawMessage      `json:"toNodes"`
	ToServices    []json.RawMessage      `json:"toServices"`
	ToFQDNs       []json.RawMessage      `json:"toFQDNs"`
	ToPorts       []ciliumPorts          `json:"toPorts"`
	ICMPs         []json.RawMessage      `json:"icmps"`
}

type ciliumPorts struct {
	Ports []struct {
		Port     intstr.IntOrString `json:"port"`
		EndPort  int                `json:"endPort"`
		Protocol string             `json:"protocol"`
	} `json:"ports"`
	Rules       map[string]json.RawMessage `json:"rules"`
	ServerNames []string                   `json:"serverNames"`
}

// readCilium reads Cilium's own policies. Deny rules of all policies precede allow rules.
func (m *Model) readCilium(r *reading, snapshot *cluster.Snapshot) {
	for _, kind := range []string{"CiliumClusterwideNetworkPolicy", "CiliumNetworkPolicy"} {
		for _, object := range snapshot.OtherOf(ciliumGroup, kind) {
			c := cilium{m, r.profile, finding.Subject{Kind: kind, Namespace: object.GetNamespace(),
				Name: object.GetName()}}
			r.policies = append(r.policies, c.policies(object)...)
		}
	}
}

// cilium reads one policy.
type cilium struct {
	*Model
	profile Profile
	ref     finding.Subject
}

// policies makes one policy for each spec.
func (c cilium) policies(object unstructured.Unstructured) []*policy {
	var specs []ciliumSpec
	for _, field := range []string{"spec", "specs"} {
		if object.Object[field] == nil {
			continue
		}
		var err error
		if field == "spec" {
			specs = append(specs, ciliumSpec{})
			err = decode(object, field, &specs[0])
		} else {
			var more []ciliumSpec
			err = decode(object, field, &more)
			specs = append(specs, more...)
		}
		if err != nil {
			c.leftOut(c.ref, "it cannot be read, so it is left out: "+err.Error())
			return nil
		}
	}
	var found []*policy
	for i := range specs {
		p, err := c.policy(&specs[i])
		switch {
		case err != nil:
			c.leftOut(c.ref, "it cannot be read, so it is left out: "+err.Error())
		case p != nil:
			p.key = fmt.Sprintf("%s/%s/%03d", c.ref.Namespace, c.ref.Name, i)
			found = append(found, p)
		}
	}
	return found
}

func (c cilium) policy(spec *ciliumSpec) (*policy, error) {
	if spec.NodeSelector != nil || spec.EndpointSelector == nil {
		c.gap(c.ref, "policies of nodes are not modelled")
		return nil, nil
	}
	pods, err := c.endpoints(spec.EndpointSelector, true)
	if err != nil {
		return nil, err
	}
	p := &policy{ref: c.ref, pods: pods, order: calicoOrder}
	for direction, lists := range [][2][]ciliumRule{{spec.IngressDeny, spec.Ingress}, {spec.EgressDeny, spec.Egress}} {
		p.governs[direction] = len(lists[0])+len(lists[1]) > 0
		p.isolates[direction] = p.governs[direction]
		for i, list := range lists {
			for j := range list {
				rules, err := c.rules(&list[j], []action{deny, allow}[i])
				if err != nil {
					return nil, err
				}
				p.rules[direction] = append(p.rules[direction], rules...)
			}
		}
	}
	for direction, set := range []*bool{spec.EnableDefaultDeny.Ingress, spec.EnableDefaultDeny.Egress} {
		if set != nil {
			p.isolates[direction] = *set
			p.governs[direction] = p.governs[direction] || *set
		}
	}
	return p, nil
}

// rules makes a rule for each kind of peer. A rule with neither peers nor ports allows nothing (it only isolates); a
// rule with only ports allows all peers.
func (c cilium) rules(from *ciliumRule, a action) ([]rule, error) {
	bases, err := c.ports(from, a)
	if err != nil {
		return nil, err
	}
	peers, named, err := c.peers(from)
	if err != nil {
		return nil, err
	}
	if !named {
		if from.ToPorts == nil {
			return nil, nil
		}
		peers = []ciliumPeer{{}}
	}
	var rules []rule
	for _, base := range bases {
		for _, p := range peers {
			r := base
			r.peer, r.deviation, r.byAddress = p.peer, p.deviation, p.deviation != ""
			r.unsure = r.unsure || p.unsure
			rules = append(rules, r)
		}
	}
	return rules, nil
}

type ciliumPeer struct {
	peer      peer
	deviation string
	unsure    bool
}

// peers returns a rule's peers, one for each kind of peer; named is false if it has none.
func (c cilium) peers(from *ciliumRule) (peers []ciliumPeer, named bool, err error) {
	requires := len(from.FromRequires)+len(from.ToRequires) > 0
	if requires {
		c.gap(c.ref, "fromRequires and toRequires are not modelled: if the rest matches, the verdict depends on them")
	}
	for _, list := range [][]metav1.LabelSelector{from.FromEndpoints, from.ToEndpoints} {
		named = named || list != nil
		for i := range list {
			pods, err := c.endpoints(&list[i], false)
			if err != nil {
				return nil, false, err
			}
			peers = append(peers, ciliumPeer{peer: peer{in: []*set{pods}}, unsure: requires})
		}
	}
	if from.FromCIDR != nil || from.ToCIDR != nil || from.FromCIDRSet != nil || from.ToCIDRSet != nil {
		named = true
		ranges, err := c.ranges(from)
		if err != nil {
			return nil, false, err
		}
		peers = append(peers, ciliumPeer{peer: peer{in: []*set{ranges}}, deviation: deviatesCIDR})
	}
	for _, list := range [][]string{from.FromEntities, from.ToEntities} {
		named = named || list != nil
		for _, entity := range list {
			peers = append(peers, ciliumPeer{peer: peer{in: []*set{c.entity(entity)}}})
		}
	}
	for what, lists := range map[string][2][]json.RawMessage{"groups": {from.FromGroups, from.ToGroups},
		"toFQDNs": {from.ToFQDNs}} {
		if lists[0] != nil || lists[1] != nil {
			named = true
			c.gap(c.ref, what+" are not modelled: they count as addresses outside of the cluster")
			peers = append(peers, ciliumPeer{peer: peer{in: []*set{c.world(maybe)}}})
		}
	}
	if from.FromNodes != nil || from.ToNodes != nil {
		named = true
		c.gap(c.ref, "fromNodes and toNodes are not modelled: they may be any node")
		peers = append(peers, ciliumPeer{peer: peer{in: []*set{c.hostsOnly(yes, yes)}}, unsure: true})
	}
	if from.ToServices != nil {
		named = true
		c.gap(c.ref, "toServices is not modelled: it may be any pod")
		peers = append(peers, ciliumPeer{unsure: true})
	}
	return peers, named, nil
}

// ranges is the set of CIDR rules: they select addresses outside of the cluster only.
func (c cilium) ranges(from *ciliumRule) (*set, error) {
	type part struct {
		within netip.Prefix
		except []netip.Prefix
	}
	var parts []part
	read := func(text string) (netip.Prefix, error) {
		prefix, ok := parsePrefix(text)
		if !ok {
			return prefix, fmt.Errorf("the address range %q", text)
		}
		c.beyond = append(c.beyond, prefix)
		return prefix, nil
	}
	unknown := false
	for _, text := range slices.Concat(from.FromCIDR, from.ToCIDR) {
		prefix, err := read(text)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{within: prefix})
	}
	for _, raw := range slices.Concat(from.FromCIDRSet, from.ToCIDRSet) {
		var one struct {
			CIDR   string   `json:"cidr"`
			Except []string `json:"except"`
		}
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, err
		}
		if one.CIDR == "" { // a group, which is another object
			unknown = true
			continue
		}
		prefix, err := read(one.CIDR)
		if err != nil {
			return nil, err
		}
		p := part{within: prefix}
		for _, text := range one.Except {
			prefix, err := read(text)
			if err != nil {
				return nil, err
			}
			p.except = append(p.except, prefix)
		}
		parts = append(parts, p)
	}
	s := c.set(fmt.Sprintf("ranges %v %v", parts, unknown), scope{nobody: true})
	s.outside = func(a netip.Addr) match {
		for _, p := range parts {
			if p.within.Contains(a) && !holds(p.except, a) {
				return yes
			}
		}
		if unknown {
			return maybe
		}
		return no
	}
	return s, nil
}

// world is all addresses outside of the cluster.
func (c cilium) world(answer match) *set {
	s := c.set(fmt.Sprintf("world %d", answer), scope{nobody: true})
	s.outside = func(netip.Addr) match { return answer }
	return s
}

// hostsOnly is nodes: others than the pod's own, and its own.
func (c cilium) hostsOnly(others, own match) *set {
	s := c.set(fmt.Sprintf("hosts %d %d", others, own), scope{nobody: true})
	s.hosts, s.own = others, own
	return s
}

// entity converts a named entity into pods and nodes of this cluster.
func (c cilium) entity(name string) *set {
	switch name {
	case "all", "cluster":
		s := c.set("entity "+name, scope{})
		s.hosts, s.own = yes, yes
		if name == "all" {
			s.outside = func(netip.Addr) match { return yes }
		}
		return s
	case "world":
		return c.world(yes)
	case "world-ipv4", "world-ipv6":
		s := c.set("entity "+name, scope{nobody: true})
		s.outside = func(a netip.Addr) match {
			if a.Is4() == (name == "world-ipv4") {
				return yes
			}
			return no
		}
		return s
	case "host":
		return c.hostsOnly(no, yes)
	case "remote-node":
		return c.hostsOnly(yes, no)
	case "kube-apiserver":
		c.gap(c.ref, "the entity kube-apiserver is not modelled: it may be any node")
		return c.hostsOnly(maybe, maybe)
	}
	return c.nobody() // no pods: health, init, unmanaged, ingress, none
}

// ports makes a rule without peers for each list of ports.
func (c cilium) ports(from *ciliumRule, a action) ([]rule, error) {
	if len(from.ToPorts) == 0 {
		if len(from.ICMPs) > 0 {
			return nil, nil
		}
		return []rule{{action: a, ports: allPorts}}, nil
	}
	var rules []rule
	for _, list := range from.ToPorts {
		r := rule{action: a}
		if len(list.Ports) == 0 {
			r.ports = allPorts
		}
		for _, port := range list.Ports {
			first, last, name, err := calicoPort(port.Port)
			if err != nil {
				return nil, err
			}
			for _, protocol := range ciliumProtocols(port.Protocol) {
				switch {
				case name != "":
					r.named = append(r.named, c.portName(protocol, name))
				case first == 0:
					r.ports = r.ports.union(protocolPorts(protocol, firstPort, lastPort))
				default:
					r.ports = r.ports.union(protocolPorts(protocol, first, max(last, port.EndPort)))
				}
			}
		}
		if len(list.Rules) > 0 || len(list.ServerNames) > 0 {
			c.gap(c.ref, "layer 7 rules are not modelled: on their ports the verdict depends on them")
			r.unsure = true
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func ciliumProtocols(name string) []int {
	if name == "" || name == "ANY" {
		return []int{0, 1, 2}
	}
	if at := protocolAt(corev1.Protocol(strings.ToUpper(name))); at >= 0 {
		return []int{at}
	}
	return nil
}

// endpoints is the set of pods of a selector. In a namespaced policy it only applies to that namespace, unless a peer
// names another namespace by label.
func (c cilium) endpoints(from *metav1.LabelSelector, subject bool) (*set, error) {
	plain, err := ciliumSelector(from)
	if err != nil {
		return nil, err
	}
	if plain == nil {
		return c.nobody(), nil
	}
	s := scope{}
	keys, label, values := labelsOf(plain)
	if subject || !slices.ContainsFunc(keys, ofNamespace) {
		s.namespace = c.ref.Namespace
	}
	s.labels, s.accounts = keys, slices.ContainsFunc(keys, ofAccount)
	if !derived(label) {
		s.label, s.values = label, values
	}
	if !plain.Empty() {
		s.pod = func(k *class) bool { return plain.Matches(labels.Set(c.seen(k))) }
	}
	key := "cilium\x00" + s.namespace + "\x00" + plain.String()
	// Cilium adds a namespace, or that there must be one, to a peer that names none.
	open := !subject && plain.Matches(labels.Set{}) && slices.ContainsFunc(keys, func(key string) bool {
		return key == ciliumNamespace || c.ref.Namespace != "" && ofNamespace(key)
	})
	if !open {
		return c.set(key, s), nil
	}
	return c.withoutNamespace(c.ref, c.profile, key, s), nil
}

// withoutNamespace is a set that also has what has no labels: nodes, and addresses outside of the cluster. Its selector
// only excludes namespaces, and what has none is not excluded.
func (m *Model) withoutNamespace(ref finding.Subject, profile Profile, key string, s scope) *set {
	answer := yes
	if _, known := majorMinor(profile.Version); known && !older(profile.Version, "1.19") {
		answer = maybe
		m.gap(ref, "a selector only excludes namespaces: where Cilium's setting policyDefaultLocalCluster is false, "+
			"it also selects nodes and addresses outside of the cluster")
	}
	found := m.set(fmt.Sprintf("%s\x00open %d", key, answer), s)
	found.hosts, found.own = match(answer), match(answer)
	found.outside = func(netip.Addr) match { return match(answer) }
	return found
}

func ofNamespace(label string) bool {
	return label == ciliumNamespace || strings.HasPrefix(label, ciliumOfNamespace)
}

// ciliumSelector removes the source prefixes from a selector's labels (k8s:app becomes app). It is nil for a selector
// that selects no pod, such as reserved:host.
func ciliumSelector(from *metav1.LabelSelector) (labels.Selector, error) {
	plain := from.DeepCopy()
	plain.MatchLabels = map[string]string{}
	for key, value := range from.MatchLabels {
		own, ok := ciliumLabel(key)
		if !ok {
			return nil, nil
		}
		plain.MatchLabels[own] = value
	}
	for i := range plain.MatchExpressions {
		own, ok := ciliumLabel(plain.MatchExpressions[i].Key)
		if !ok {
			return nil, nil
		}
		plain.MatchExpressions[i].Key = own
	}
	return metav1.LabelSelectorAsSelector(plain)
}

func ciliumLabel(key string) (string, bool) {
	source, own, found := strings.Cut(key, ":")
	if !found {
		return key, true
	}
	return own, source == "k8s" || source == "any"
}
