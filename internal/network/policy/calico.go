package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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
	ApplyOnForward         bool         `json:"applyOnForward"` // for host endpoints, which are not modelled
}

type calicoRule struct {
	Action      string              `json:"action"`
	IPVersion   *int                `json:"ipVersion"`
	Protocol    *intstr.IntOrString `json:"protocol"`
	NotProtocol *intstr.IntOrString `json:"notProtocol"`
	ICMP        *calicoICMP         `json:"icmp"`
	NotICMP     *calicoICMP         `json:"notICMP"` // not modelled: no verdict is about ICMP
	HTTP        *struct{}           `json:"http"`
	Source      calicoEntity        `json:"source"`
	Destination calicoEntity        `json:"destination"`
}

type calicoICMP struct {
	Type *int `json:"type"`
	Code *int `json:"code"`
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
	m.networkSets = m.calicoSets(snapshot)
	m.networkPolicies(r, snapshot, tiers[defaultTier])
	for _, kind := range []string{"GlobalNetworkPolicy", "NetworkPolicy"} {
		for _, object := range snapshot.Calico(kind) {
			if p, tier := m.calicoPolicy(kind, object); p != nil {
				p.tier = tiers[tier]
				r.policies = append(r.policies, p)
			}
		}
	}
	for _, object := range snapshot.Calico("HostEndpoint") {
		m.gap(finding.Subject{Kind: "HostEndpoint", Name: object.GetName()}, "host endpoints are not modelled: "+
			"for the "+
			"model, no selector selects nodes and hostNetwork pods")
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
		c.gap(c.ref, "doNotTrack and preDNAT are not modelled: such a policy applies to host endpoints, and is "+
			"left out")
		return nil, ""
	}
	tier := cmp.Or(spec.Tier, defaultTier)
	p := &policy{ref: c.ref, order: orInfinite(spec.Order),
		key: tier + "." + strings.TrimPrefix(object.GetName(), tier+".")}
	if c.ref.Namespace != "" {
		p.key = c.ref.Namespace + "/" + p.key
	}
	subject, err := c.selected(c.ref.Namespace, spec.NamespaceSelector, spec.Selector, spec.ServiceAccountSelector, nil)
	if err != nil {
		c.leftOut(c.ref, "its selector cannot be read, so it is left out: "+err.Error())
		return nil, ""
	}
	if subject.unsure {
		c.gapOf(c.ref, noAccounts+", so it is left out: it may select any pod that the rest of its selector selects")
		c.veils = append(c.veils, subject.pods)
		return nil, ""
	}
	p.pods = subject.pods
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

func (c calico) rules(rules []calicoRule, direction Direction) []rule {
	var found []rule
	for i := range rules {
		either, err := c.rule(&rules[i], direction)
		if err != nil {
			c.leftOut(c.ref, fmt.Sprintf("%s rule %d cannot be read, so it is left out: %v", direction, i+1, err))
			continue
		}
		found = append(found, either...)
	}
	return found
}

// rule parses a rule. It makes one for each pair of what the ends may be, all with the same action, and none for a rule
// that never decides: a log rule, or one for a protocol without ports.
func (c calico) rule(from *calicoRule, direction Direction) (either []rule, err error) {
	var r rule
	switch strings.ToLower(from.Action) {
	case "allow":
		r.action = allow
	case "deny":
		r.action = deny
	case "pass", "next-tier":
		r.action = pass
	case "log":
		return nil, nil
	default:
		return nil, fmt.Errorf("the action %q", from.Action)
	}
	peer, self := &from.Source, &from.Destination
	if direction == Egress {
		peer, self = self, peer
	}
	peers, unsurePeer, err := c.entity(peer)
	if err != nil {
		return nil, err
	}
	selves, unsureSelf, err := c.entity(self)
	if err != nil {
		return nil, err
	}
	base, err := calicoProtocols(from)
	if err != nil {
		return nil, err
	}
	if err := c.rulePorts(&r, base, &from.Destination); err != nil {
		return nil, err
	}
	r.unsure = c.unsure(from) || unsurePeer || unsureSelf
	if len(r.ports) == 0 && !r.byName() {
		return nil, nil
	}
	for _, r.peer = range peers {
		r.byAddress = r.peer.byAddress()
		if from.IPVersion != nil {
			family := "0.0.0.0/0"
			if *from.IPVersion == 6 {
				family = "::/0"
			}
			r.peer.nets = append(slices.Clone(r.peer.nets), c.net(c.ref, family))
		}
		for _, one := range selves {
			both := r
			both.self, both.byAddress = one, r.byAddress || one.byAddress()
			either = append(either, both)
		}
	}
	return either, nil
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
		c.gap(c.ref, strings.Join(what, ", ")+": not modelled; if the rest of the rule matches, the verdict "+
			"depends on it")
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

// entity is one end of a rule: it is one of those returned. unsure is true if it may be fewer of the pods. In a
// namespaced policy a selector only applies to that namespace, unless it names others; so does notSelector without a
// selector (libcalico-go/lib/backend/syncersv1/updateprocessors/rules.go).
func (c calico) entity(e *calicoEntity) (either []peer, unsure bool, err error) {
	var p peer
	if len(e.Nets) > 0 {
		p.nets = append(p.nets, c.net(c.ref, e.Nets...))
	}
	if len(e.NotNets) > 0 {
		p.notNets = append(p.notNets, c.net(c.ref, e.NotNets...))
	}
	if e.NotSelector != "" {
		out, err := c.selected("", "", e.NotSelector, "", nil)
		if err != nil {
			return nil, false, err
		}
		if unsure = out.unsure; !unsure {
			p.out = append(p.out, out.pods)
		}
		if len(out.nets) > 0 {
			p.notNets = append(p.notNets, c.net(c.ref, out.nets...))
		}
	}
	either = []peer{p}
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
			return nil, false, err
		}
		unsure = unsure || in.unsure
		either[0].in = []*set{in.pods}
		if len(in.nets) > 0 {
			p.nets = append(slices.Clone(p.nets), c.net(c.ref, in.nets...))
			either = append(either, p)
		}
	}
	if unsure {
		c.gap(c.ref, noAccounts+": if the rest of a rule matches, the verdict depends on it")
	}
	return either, unsure, nil
}

// noAccounts is why a selector of labels of service accounts selects pods that are not known.
const noAccounts = "labels of service accounts are not in the snapshot"

// picked is what a selector selects: pods, and the address ranges of network sets.
type picked struct {
	pods *set
	nets []string
	// unsure is true if the selector uses labels of service accounts and these are not known: pods are then those that
	// the rest of it selects.
	unsure bool
}

// selected returns what matches all selectors: of namespaces, pods and service accounts (or their names).
func (c calico) selected(own, namespaces, pods, accounts string, names []string) (found picked, err error) {
	// As in Calico, all() matches every namespace, and global() matches objects without a namespace.
	ofNamespaces, err := selector.Parse(strings.NewReplacer("all()", "has("+calicoNamespaceLabel+")", "global()",
		"!has("+calicoNamespaceLabel+")").Replace(namespaces))
	if err != nil {
		return found, err
	}
	ofLabels, err := selector.Parse(pods)
	if err != nil {
		return found, err
	}
	ofAccounts, err := selector.Parse(accounts)
	if err != nil {
		return found, err
	}
	for _, one := range c.networkSets {
		if (own == "" || own == one.in) && ofNamespaces.Matches(one.namespace) && ofLabels.Matches(one.labels) &&
			ofAccounts.Matches(nil) && len(names) == 0 {
			found.nets = append(found.nets, one.nets...)
		}
	}
	if !c.accountsKnown && slices.ContainsFunc(ofLabels.Keys(), labelOfAccount) {
		pods, found.unsure = "", true
	}
	if !c.accountsKnown && slices.ContainsFunc(ofAccounts.Keys(), func(key string) bool { return key != calicoName }) {
		accounts, found.unsure = "", true
	}
	s := scope{namespace: own}
	if namespaces != "" {
		s.inNamespace = remembered(func(n *namespace) bool { return ofNamespaces.Matches(calicoNamespace(n)) })
	}
	var conditions []func(*class) bool
	if pods != "" {
		s.labels, s.accounts = ofLabels.Keys(), slices.ContainsFunc(ofLabels.Keys(), ofAccount)
		label, values, ok := ofLabels.Required()
		switch {
		case ok && label == calicoNamespaceLabel && own == "" && len(values) == 1:
			s.namespace = values[0]
		case ok && !derived(label):
			s.label, s.values = label, values
		}
		conditions = append(conditions, func(k *class) bool { return ofLabels.Matches(c.seen(k)) })
	}
	if accounts != "" {
		s.accounts = true
		conditions = append(conditions, func(k *class) bool { return ofAccounts.Matches(c.accountLabels(k)) })
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
	found.pods = c.set(strings.Join([]string{"calico", own, namespaces, pods, accounts, strings.Join(names, "\x01")},
		"\x00"), s)
	return found, nil
}

// networkSet is a list of address ranges that selectors of rules select by labels, as they do pods.
type networkSet struct {
	// in is its namespace, and namespace the labels that a namespace selector uses: empty for a GlobalNetworkSet.
	in        string
	namespace map[string]string
	// labels are its own and those that Calico adds.
	labels map[string]string
	nets   []string
}

// calicoSets reads network sets (libcalico-go/lib/backend/syncersv1/updateprocessors/networksetprocessor.go).
func (m *Model) calicoSets(snapshot *cluster.Snapshot) (found []networkSet) {
	for _, kind := range []string{"GlobalNetworkSet", "NetworkSet"} {
		for _, object := range snapshot.Calico(kind) {
			one := networkSet{in: object.GetNamespace(), labels: object.GetLabels()}
			var spec struct {
				Nets []string `json:"nets"`
			}
			if err := decode(object, "spec", &spec); err != nil {
				m.gap(finding.Subject{Kind: kind, Namespace: one.in, Name: object.GetName()},
					"it cannot be read: "+err.Error())
			}
			if one.nets = spec.Nets; one.in != "" {
				of := m.namespaces[one.in]
				if of == nil {
					of = &namespace{name: one.in}
				}
				one.namespace = calicoNamespace(of)
				one.labels = maps.Clone(one.labels)
				if one.labels == nil {
					one.labels = map[string]string{}
				}
				one.labels[calicoNamespaceLabel] = one.in
				for label, value := range one.namespace {
					one.labels[calicoOfNamespace+label] = value
				}
			}
			found = append(found, one)
		}
	}
	return found
}
