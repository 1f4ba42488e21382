package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
)

// calicoServed is the API group of Calico's objects for users.
const calicoServed = "projectcalico.org"

// defaultTier is the tier of NetworkPolicies and of policies without a tier.
const (
	defaultTier      = "default"
	defaultTierOrder = 1_000_000
)

// calicoSpec is the part of (Global)NetworkPolicy that affects verdicts: api/pkg/apis/projectcalico/v3 of Calico v3.31.
type calicoSpec struct {
	Tier                   string       `json:"tier"`
	Order                  *float64     `json:"order"`
	Selector               string       `json:"selector"`
	NamespaceSelector      string       `json:"namespaceSelector"`
	ServiceAccountSelector string       `json:"serviceAccountSelector"`
	Types                  []string     `json:"types"`
	Ingress                []calicoRule `json:"ingress"`
	Egress                 []calicoRule `json:"egress"`
	DoNotTrack             bool         `json:"doNotTrack"`
	PreDNAT                bool         `json:"preDNAT"`
}

type calicoRule struct {
	Action      string              `json:"action"`
	IPVersion   *int                `json:"ipVersion"`
	Protocol    *intstr.IntOrString `json:"protocol"`
	NotProtocol *intstr.IntOrString `json:"notProtocol"`
	ICMP        *struct{}           `json:"icmp"`
	HTTP        *struct{}           `json:"http"`
	Source      calicoEntity        `json:"source"`
	Destination calicoEntity        `json:"destination"`
}

type calicoEntity struct {
	Nets              []string             `json:"nets"`
	NotNets           []string             `json:"notNets"`
	Selector          string               `json:"selector"`
	NotSelector       string               `json:"notSelector"`
	NamespaceSelector string               `json:"namespaceSelector"`
	Ports             []intstr.IntOrString `json:"ports"`
	NotPorts          []intstr.IntOrString `json:"notPorts"`
	Services          *struct{}            `json:"services"`
	ServiceAccounts   *struct {
		Names    []string `json:"names"`
		Selector string   `json:"selector"`
	} `json:"serviceAccounts"`
}

type calicoTier struct {
	Order         *float64 `json:"order"`
	DefaultAction string   `json:"defaultAction"`
}

// readCalico reads Calico's own policies, and NetworkPolicies as Calico treats them: in the default tier, at order
// 1000.
func (m *Model) readCalico(r *reading, snapshot *cluster.Snapshot) {
	tiers := m.calicoTiers(r, snapshot)
	m.networkPolicies(r, snapshot, tiers[defaultTier])
	for _, kind := range []string{"GlobalNetworkPolicy", "NetworkPolicy"} {
		for _, object := range snapshot.Calico(kind) {
			if p, tier := m.calicoPolicy(kind, object); p != nil {
				p.tier = tiers[tier]
				r.policies = append(r.policies, p)
			}
		}
	}
	for kind, what := range map[string]string{
		"HostEndpoint": "host endpoints are not modelled: nodes and pods on the host network " +
			"count as reached by no selector",
		"GlobalNetworkSet": "network sets are not modelled: a selector that selects one matches pods only",
		"NetworkSet":       "network sets are not modelled: a selector that selects one matches pods only",
	} {
		for _, object := range snapshot.Calico(kind) {
			m.gap(finding.Subject{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}, what)
		}
	}
}

// calicoTiers sorts the tiers; a policy with a tier that does not exist comes last.
func (m *Model) calicoTiers(r *reading, snapshot *cluster.Snapshot) map[string]int {
	type ordered struct {
		tier
		order float64
	}
	all := map[string]ordered{defaultTier: {tier{name: defaultTier}, defaultTierOrder}}
	for _, object := range snapshot.Calico("Tier") {
		var spec calicoTier
		if err := decode(object, "spec", &spec); err != nil {
			m.gap(finding.Subject{Kind: "Tier", Name: object.GetName()}, "it cannot be read: "+err.Error())
		}
		all[object.GetName()] = ordered{tier{name: object.GetName(), passes: spec.DefaultAction == "Pass"},
			orInfinite(spec.Order)}
	}
	for _, kind := range []string{"GlobalNetworkPolicy", "NetworkPolicy"} {
		for _, object := range snapshot.Calico(kind) {
			name, _, _ := unstructured.NestedString(object.Object, "spec", "tier")
			if _, known := all[cmp.Or(name, defaultTier)]; !known {
				all[name] = ordered{tier{name: name}, math.Inf(1)}
			}
		}
	}
	var list []ordered
	for _, t := range all {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b ordered) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.name, b.name))
	})
	at := map[string]int{}
	for i, t := range list {
		at[t.name] = i
		r.tiers = append(r.tiers, t.tier)
	}
	return at
}

func orInfinite(order *float64) float64 {
	if order == nil {
		return math.Inf(1)
	}
	return *order
}

func decode(object unstructured.Unstructured, field string, into any) error {
	raw, err := json.Marshal(object.Object[field])
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// calicoPolicy parses a policy; nil if it does not apply to pods.
func (m *Model) calicoPolicy(kind string, object unstructured.Unstructured) (*policy, string) {
	c := calico{m, finding.Subject{Kind: kind + "." + calicoServed, Namespace: object.GetNamespace(),
		Name: object.GetName()}}
	var spec calicoSpec
	if err := decode(object, "spec", &spec); err != nil {
		c.leftOut(c.ref, "it cannot be read, so it is left out: "+err.Error())
		return nil, ""
	}
	if spec.DoNotTrack || spec.PreDNAT {
		c.gap(c.ref, "doNotTrack and preDNAT are not modelled: such a policy is about host endpoints, and is left out")
		return nil, ""
	}
	tier := cmp.Or(spec.Tier, defaultTier)
	p := &policy{ref: c.ref, order: orInfinite(spec.Order),
		key: tier + "." + strings.TrimPrefix(object.GetName(), tier+".")}
	if c.ref.Namespace != "" {
		p.key = c.ref.Namespace + "/" + p.key
	}
	var err error
	if p.pods, err = c.subject(spec); err != nil {
		c.leftOut(c.ref, "its selector cannot be read, so it is left out: "+err.Error())
		return nil, ""
	}
	for _, direction := range spec.directions() {
		p.governs[direction], p.isolates[direction] = true, true
	}
	p.rules[Ingress] = c.rules(spec.Ingress, Ingress)
	p.rules[Egress] = c.rules(spec.Egress, Egress)
	return p, tier
}

// directions returns the policy's types; by default those for which it has rules, or ingress if it has none.
func (s calicoSpec) directions() []Direction {
	var found []Direction
	if slices.Contains(s.Types, "Ingress") || len(s.Types) == 0 && (len(s.Egress) == 0 || len(s.Ingress) > 0) {
		found = append(found, Ingress)
	}
	if slices.Contains(s.Types, "Egress") || len(s.Types) == 0 && len(s.Egress) > 0 {
		found = append(found, Egress)
	}
	return found
}

// calico reads one policy.
type calico struct {
	*Model
	ref finding.Subject
}

func (c calico) subject(spec calicoSpec) (*set, error) {
	return c.selected(c.ref.Namespace, spec.NamespaceSelector, spec.Selector, spec.ServiceAccountSelector, nil)
}

func (c calico) rules(rules []calicoRule, direction Direction) []rule {
	var found []rule
	for i := range rules {
		r, ok, err := c.rule(&rules[i], direction)
		if err != nil {
			c.leftOut(c.ref, fmt.Sprintf("%s rule %d cannot be read, so it is left out: %v", direction, i+1, err))
			continue
		}
		if ok {
			found = append(found, r)
		}
	}
	return found
}

// rule parses a rule; false for a rule that never decides: a log rule, or one for a protocol without ports.
func (c calico) rule(from *calicoRule, direction Direction) (r rule, ok bool, err error) {
	switch strings.ToLower(from.Action) {
	case "allow":
		r.action = allow
	case "deny":
		r.action = deny
	case "pass", "next-tier":
		r.action = pass
	case "log":
		return r, false, nil
	default:
		return r, false, fmt.Errorf("the action %q", from.Action)
	}
	peer, self := &from.Source, &from.Destination
	if direction == Egress {
		peer, self = self, peer
	}
	if r.peer, err = c.entity(peer); err != nil {
		return r, false, err
	}
	if r.self, err = c.entity(self); err != nil {
		return r, false, err
	}
	r.byAddress = len(r.peer.nets)+len(r.peer.notNets)+len(r.self.nets)+len(r.self.notNets) > 0
	if from.IPVersion != nil {
		family := "0.0.0.0/0"
		if *from.IPVersion == 6 {
			family = "::/0"
		}
		r.peer.nets = append(r.peer.nets, c.net(c.ref, family))
	}
	base, err := calicoProtocols(from)
	if err != nil {
		return r, false, err
	}
	if err := c.rulePorts(&r, base, &from.Destination); err != nil {
		return r, false, err
	}
	r.unsure = c.unsure(from)
	return r, len(r.ports) > 0 || r.byName(), nil
}

// unsure names the parts of a rule that are not modelled.
func (c calico) unsure(from *calicoRule) bool {
	var what []string
	if from.HTTP != nil {
		what = append(what, "http")
	}
	if from.Source.Services != nil || from.Destination.Services != nil {
		what = append(what, "services")
	}
	if len(from.Source.Ports)+len(from.Source.NotPorts) > 0 {
		what = append(what, "source ports")
	}
	if len(what) > 0 {
		c.gap(c.ref, strings.Join(what, ", ")+": not modelled; where the rest of the rule matches, the verdict depends")
	}
	return len(what) > 0
}

// calicoProtocols returns all ports of a rule's protocols.
func calicoProtocols(from *calicoRule) ([]int, error) {
	all := []int{0, 1, 2}
	if from.ICMP != nil {
		return nil, nil
	}
	if from.Protocol != nil {
		one, err := calicoProtocol(*from.Protocol)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(p int) bool { return p != one })
	}
	if from.NotProtocol != nil {
		one, err := calicoProtocol(*from.NotProtocol)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(p int) bool { return p == one })
	}
	return all, nil
}

// calicoProtocol returns the number of a protocol; -1 for one without ports.
func calicoProtocol(p intstr.IntOrString) (int, error) {
	switch strings.ToUpper(p.String()) {
	case "TCP", "6":
		return 0, nil
	case "UDP", "17":
		return 1, nil
	case "SCTP", "132":
		return 2, nil
	case "ICMP", "ICMPV6", "UDPLITE":
		return -1, nil
	}
	if n, err := strconv.Atoi(p.String()); err == nil && n > 0 && n < 256 {
		return -1, nil
	}
	return 0, fmt.Errorf("the protocol %q", p.String())
}

func (c calico) rulePorts(r *rule, protocols []int, to *calicoEntity) (err error) {
	for _, protocol := range protocols {
		if len(to.Ports) == 0 {
			r.ports = r.ports.union(protocolPorts(protocol, firstPort, lastPort))
		}
		if r.ports, r.named, err = c.addPorts(r.ports, r.named, protocol, to.Ports); err != nil {
			return err
		}
		if r.notPorts, r.notNamed, err = c.addPorts(r.notPorts, r.notNamed, protocol, to.NotPorts); err != nil {
			return err
		}
	}
	return nil
}

func (c calico) addPorts(numbers spans, names []namedPort, protocol int,
	ports []intstr.IntOrString) (spans, []namedPort, error) {
	for _, port := range ports {
		first, last, name, err := calicoPort(port)
		switch {
		case err != nil:
			return nil, nil, err
		case name != "":
			names = append(names, c.portName(protocol, name))
		default:
			numbers = numbers.union(protocolPorts(protocol, first, last))
		}
	}
	return numbers, names, nil
}

// calicoPort parses a number, a range 1:2, or a name.
func calicoPort(port intstr.IntOrString) (first, last int, name string, err error) {
	text := port.String()
	from, to, ranged := strings.Cut(text, ":")
	if !ranged {
		to = from
	}
	first, errFirst := strconv.Atoi(from)
	last, errLast := strconv.Atoi(to)
	switch {
	case errFirst == nil && errLast == nil && first >= 0 && first <= last && last <= lastPort:
		return first, last, "", nil
	case errFirst == nil || ranged || text == "":
		return 0, 0, "", fmt.Errorf("the port %q", text)
	}
	return 0, 0, text, nil
}

// entity is one end of a rule. In a namespaced policy a selector only applies to that namespace, unless it names
// others; so does notSelector without a selector (libcalico-go/lib/backend/syncersv1/updateprocessors/rules.go).
func (c calico) entity(e *calicoEntity) (p peer, err error) {
	accounts := ""
	var names []string
	if e.ServiceAccounts != nil {
		accounts, names = e.ServiceAccounts.Selector, e.ServiceAccounts.Names
	}
	if e.Selector != "" || e.NamespaceSelector != "" || accounts != "" || len(names) > 0 ||
		e.NotSelector != "" && c.ref.Namespace != "" {
		namespace := c.ref.Namespace
		if e.NamespaceSelector != "" {
			namespace = ""
		}
		in, err := c.selected(namespace, e.NamespaceSelector, e.Selector, accounts, names)
		if err != nil {
			return p, err
		}
		p.in = append(p.in, in)
	}
	if e.NotSelector != "" {
		out, err := c.selected("", "", e.NotSelector, "", nil)
		if err != nil {
			return p, err
		}
		p.out = append(p.out, out)
	}
	if len(e.Nets) > 0 {
		p.nets = append(p.nets, c.net(c.ref, e.Nets...))
	}
	if len(e.NotNets) > 0 {
		p.notNets = append(p.notNets, c.net(c.ref, e.NotNets...))
	}
	return p, nil
}

// selected returns the set of pods that match all selectors: of namespaces, pods and service accounts (or their names).
func (c calico) selected(own, namespaces, pods, accounts string, names []string) (*set, error) {
	s := scope{namespace: own}
	if namespaces != "" {
		// As in Calico, all() matches every namespace, and global() matches objects without a namespace.
		text := strings.NewReplacer("all()", "has("+calicoNamespaceLabel+")", "global()",
			"!has("+calicoNamespaceLabel+")").Replace(namespaces)
		parsed, err := selector.Parse(text)
		if err != nil {
			return nil, err
		}
		s.inNamespace = remembered(func(n *namespace) bool { return parsed.Matches(calicoNamespace(n)) })
	}
	var conditions []func(*class) bool
	if pods != "" {
		parsed, err := selector.Parse(pods)
		if err != nil {
			return nil, err
		}
		s.labels, s.accounts = parsed.Keys(), slices.ContainsFunc(parsed.Keys(), ofAccount)
		label, values, ok := parsed.Required()
		switch {
		case ok && label == calicoNamespaceLabel && own == "" && len(values) == 1:
			s.namespace = values[0]
		case ok && !derived(label):
			s.label, s.values = label, values
		}
		conditions = append(conditions, func(k *class) bool { return parsed.Matches(c.seen(k)) })
	}
	if accounts != "" {
		parsed, err := selector.Parse(accounts)
		if err != nil {
			return nil, err
		}
		s.accounts = true
		if !c.accountsKnown {
			c.gap(c.ref, "labels of service accounts are not in the snapshot: a selector of them sees only names")
		}
		conditions = append(conditions, func(k *class) bool { return parsed.Matches(c.accountLabels(k)) })
	}
	if len(names) > 0 {
		s.accounts = true
		conditions = append(conditions, func(k *class) bool { return slices.Contains(names, k.account) })
	}
	if len(conditions) > 0 {
		s.pod = func(k *class) bool {
			return !slices.ContainsFunc(conditions, func(holds func(*class) bool) bool { return !holds(k) })
		}
	}
	return c.set(strings.Join([]string{"calico", own, namespaces, pods, accounts, strings.Join(names, "\x01")}, "\x00"),
		s), nil
}
