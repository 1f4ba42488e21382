package policy

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
)

// origin is a policy that is translated, or a NetworkPolicy, which Cilium reads itself.
type origin struct {
	policy
	kube bool
	// subjects are the pods that it selects.
	subjects []choice
	items    [2][]*item
	// passesRest says by direction whether what no rule matches goes on to the next tier.
	passesRest [2]bool
}

// item is a rule of an origin.
type item struct {
	of     *origin
	name   string // "ingress rule 2"
	action action
	boxes  []box
	// hard is true if one of Cilium's deny rules says the same, moot if default deny does.
	hard, moot bool
	// pieces are what the rule decides when everything before it is taken into account.
	pieces []box
}

// noEqual is why a rule or policy cannot be translated.
type noEqual struct{ reason, hint string }

func (e *noEqual) Error() string { return e.reason }

func unequal(reason, hint string, args ...any) error {
	return &noEqual{fmt.Sprintf(reason, args...), hint}
}

// translator reads Calico's policies as boxes.
type translator struct {
	*Model
	out *Translation
	// pods are the addresses that pods have and may get, nodes those of nodes; from and to are those that nodes use as
	// a source and as a destination.
	// Without any, it is not known which addresses they have.
	pods      addresses
	nodes     [2]addresses
	known     map[string]bool // tiers
	networks  []networkSet
	origins   []*origin
	hostEnds  []unstructured.Unstructured
	direction Direction
}

func (t *translator) look(snapshot *cluster.Snapshot, source Profile) {
	t.pods = addressesOf(source.Pods...)
	add := func(to *addresses, known addresses) {
		if to.holds(known) != yes {
			*to = to.union(known)
		}
	}
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		own, host := addressesOfPod(&pod.Status)
		add(&t.nodes[Egress], host)
		if pod.Spec.HostNetwork {
			add(&t.nodes[Egress], own)
		} else {
			add(&t.pods, own)
		}
	}
	for i := range snapshot.Nodes {
		add(&t.nodes[Egress], addressesOfNode(&snapshot.Nodes[i]))
	}
	if t.nodes[Ingress] = t.nodes[Egress]; source.Tunnelled && len(t.nodes[Egress]) > 0 {
		t.nodes[Ingress] = t.nodes[Ingress].union(t.pods)
	}
}

func (t *translator) refuse(ref finding.Subject, rule string, err error) {
	r := Remark{Policy: ref, Rule: rule, Text: err.Error()}
	var known *noEqual
	if errors.As(err, &known) {
		r.Hint = known.hint
	}
	t.out.Untranslated = append(t.out.Untranslated, r)
}

func (t *translator) note(ref finding.Subject, rule, text string, args ...any) {
	r := Remark{Policy: ref, Rule: rule, Text: fmt.Sprintf(text, args...)}
	if !slices.Contains(t.out.Notes, r) {
		t.out.Notes = append(t.out.Notes, r)
	}
}

// calicoOrigin reads one policy; nil if it cannot be translated at all.
func (t *translator) calicoOrigin(kind string, object unstructured.Unstructured, tiers map[string]int) *origin {
	ref := finding.Subject{Kind: kind + "." + calicoServed, Namespace: object.GetNamespace(), Name: object.GetName()}
	var spec calicoSpec
	if err := decode(object, "spec", &spec); err != nil {
		t.refuse(ref, "", unequal("it cannot be read: %v", "correct the policy", err))
		return nil
	}
	if spec.DoNotTrack || spec.PreDNAT {
		t.refuse(ref, "", unequal("doNotTrack and preDNAT apply to host endpoints, before connections are tracked",
			"write a policy for Cilium's host firewall (nodeSelector) by hand"))
		return nil
	}
	tier := cmp.Or(spec.Tier, defaultTier)
	if !t.known[tier] {
		t.refuse(ref, "", unequal("its tier %s does not exist, so its place among the others is not known",
			"create the tier, or move the policy to another", tier))
		return nil
	}
	own := object.GetNamespace()
	subjects, err := t.selected(ref, "", own, spec.NamespaceSelector, spec.Selector, spec.ServiceAccountSelector, nil)
	if err != nil {
		t.refuse(ref, "", err)
		return nil
	}
	t.hosts(ref, own, &spec)
	o := &origin{policy: policy{ref: ref, tier: tiers[tier], order: orInfinite(spec.Order),
		key: tier + "." + strings.TrimPrefix(object.GetName(), tier+".")}, subjects: subjects}
	if own != "" {
		o.key = own + "/" + o.key
	}
	for _, d := range spec.directions() {
		o.governs[d] = true
		for i := range [][]calicoRule{spec.Ingress, spec.Egress}[d] {
			t.direction = d
			t.calicoItem(o, fmt.Sprintf("%s rule %d", d, i+1), &[][]calicoRule{spec.Ingress, spec.Egress}[d][i])
		}
	}
	return o
}

// hosts reports a policy that applies to host endpoints as well.
func (t *translator) hosts(ref finding.Subject, own string, spec *calicoSpec) {
	if own != "" || spec.NamespaceSelector != "" || spec.ServiceAccountSelector != "" {
		return
	}
	selects, err := selector.Parse(spec.Selector)
	if err != nil {
		return
	}
	for _, end := range t.hostEnds {
		if selects.Matches(end.GetLabels()) {
			t.refuse(ref, "", unequal("it also applies to the host endpoint %s; only its effect on pods is translated",
				"write a policy for Cilium's host firewall (nodeSelector) by hand", end.GetName()))
			return
		}
	}
}

func (t *translator) calicoItem(o *origin, name string, from *calicoRule) {
	it := &item{of: o, name: name}
	switch strings.ToLower(from.Action) {
	case "allow":
		it.action = allow
	case "deny":
		it.action = deny
	case "pass", "next-tier":
		it.action = pass
	case "log":
		t.note(o.ref, name, "Log has no equivalent and changes no verdict; Hubble shows what Cilium allows and drops")
		return
	default:
		t.refuse(o.ref, name, unequal("the action %q is not known", "use Allow, Deny, Pass or Log", from.Action))
		return
	}
	boxes, err := t.boxes(o, name, from)
	if err != nil {
		t.refuse(o.ref, name, err) // a part may be left
	}
	if it.boxes = boxes; len(boxes) > 0 {
		o.items[t.direction] = append(o.items[t.direction], it)
	}
}

func (t *translator) boxes(o *origin, name string, from *calicoRule) (all []box, err error) {
	doors, err := t.doors(from)
	if err != nil {
		return nil, err
	}
	switch {
	case from.HTTP != nil:
		return nil, unequal("it matches HTTP requests", "write the layer 7 rule by hand (toPorts.rules.http)")
	case from.Source.Services != nil || from.Destination.Services != nil:
		return nil, unequal("it names a Service", "name the pods of the Service by a selector, or use toServices "+
			"by hand")
	}
	peer, self := &from.Source, &from.Destination
	if t.direction == Egress {
		peer, self = self, peer
	}
	var part error
	peers, err := t.entity(o.ref, name, peer, from.IPVersion)
	if errors.As(err, new(*partial)) {
		part, err = err, nil
	}
	if err != nil {
		return nil, err
	}
	selves, err := t.entity(o.ref, name, self, from.IPVersion)
	var some *partial
	switch {
	case errors.As(err, &some):
		switch {
		case slices.Contains(some.unknown, wherePods):
			return nil, unequal("it matches the pods that the policy selects by address, and the input has no "+
				"addresses of pods, so it is unknown which pods these are; Cilium selects pods by labels only",
				"use labels, or "+addInput)
		case slices.Contains(some.divided, wherePods):
			return nil, unequal("it matches some of the pods that the policy selects by address; Cilium selects pods "+
				"by labels only", "use labels")
		}
	case err != nil:
		return nil, err
	}
	for _, s := range o.subjects {
		for _, own := range selves {
			if own.kind != farPods {
				continue
			}
			pods, ok := s.and(own.pods)
			if !ok {
				continue
			}
			for _, p := range peers {
				for _, d := range doors {
					all = append(all, box{pods, p, d})
				}
			}
		}
	}
	return all, part
}

// doors are the ports of a rule.
func (t *translator) doors(from *calicoRule) (all []door, err error) {
	to := &from.Destination
	switch {
	case len(from.Source.Ports)+len(from.Source.NotPorts) > 0:
		return nil, unequal("it names source ports, which Cilium does not see", "remove them from the rule")
	case from.NotProtocol != nil:
		return nil, unequal("it names a protocol that is not meant", "name the protocols that are")
	case from.NotICMP != nil:
		return nil, unequal("it names an ICMP type that is not meant", "name the types that are")
	case from.ICMP != nil && from.ICMP.Code != nil:
		return nil, unequal("it names an ICMP code; Cilium knows types only", "remove the code")
	}
	protocols := []int{0, 1, 2}
	if from.Protocol != nil {
		switch name := strings.ToUpper(from.Protocol.String()); name {
		case "ICMP", "1":
			return icmpDoor(protocolICMP, from.ICMP)
		case "ICMPV6", "58":
			return icmpDoor(protocolICMPv6, from.ICMP)
		default:
			one, err := calicoProtocol(*from.Protocol)
			if err != nil {
				return nil, err
			}
			if one < 0 {
				return nil, unequal("its protocol %s has no equivalent: Cilium's rules name TCP, UDP, SCTP and ICMP",
					"allow all protocols to these peers, or none", name)
			}
			protocols = []int{one}
		}
	}
	if from.ICMP != nil {
		return nil, unequal("it names an ICMP type without the protocol ICMP", "add the protocol")
	}
	if from.Protocol == nil && len(to.Ports)+len(to.NotPorts) == 0 {
		return []door{{ports: everything}}, nil
	}
	var r rule
	c := calico{Model: t.Model}
	if err := c.rulePorts(&r, protocols, to); err != nil {
		return nil, err
	}
	if len(r.notNamed) > 0 {
		return nil, unequal("it excludes a named port", "exclude the number")
	}
	if ports := r.ports.subtract(r.notPorts); len(ports) > 0 {
		all = append(all, door{ports: ports})
	}
	for _, name := range r.named {
		switch {
		case len(r.notPorts) > 0:
			return nil, unequal("it has named ports and excludes numbers", "use numbers only")
		case t.direction == Egress:
			return nil, unequal("it names the port %s of other pods; Cilium looks such a name up for the whole cluster",
				"use the number", name.name)
		}
		all = append(all, door{name: name})
	}
	return all, nil
}

func icmpDoor(protocol int, icmp *calicoICMP) ([]door, error) {
	first, last := 0, 255
	if icmp != nil && icmp.Type != nil {
		first, last = *icmp.Type, *icmp.Type
	}
	if first < 0 || last > 255 {
		return nil, fmt.Errorf("the ICMP type %d", first)
	}
	return []door{{ports: icmpTypes(protocol, first, last)}}, nil
}

// partial says that a part of a rule's other ends could not be translated.
type partial struct {
	noEqual
	// divided are "pods" or "nodes" of which some are meant, unknown those whose addresses are not in the input.
	divided, unknown []string
}

const (
	wherePods, whereNodes = "pods", "nodes"

	addInput = "add a snapshot of the cluster, which has its nodes, pods and IP pools: theseus snapshot -o FILE"
)

// err makes the error; nil if nothing is missing.
func (p *partial) err() error {
	var reasons, hints []string
	if whose := strings.Join(p.divided, " and "); whose != "" {
		reasons = append(reasons, "its address ranges have the addresses of some "+whose+" and not of others")
		hints = append(hints, "select "+whose+" by labels or entities instead of ranges")
	}
	if whose := strings.Join(p.unknown, " and "); whose != "" {
		reasons = append(reasons, "the input has no addresses of "+whose+", so it is unknown whether its address "+
			"ranges contain them")
		hints = append(hints, addInput)
	}
	if len(reasons) == 0 {
		return nil
	}
	p.reason = strings.Join(reasons, ", and ") + ": for Cilium a range never matches a pod or a node; the rule is " +
		"translated without " + strings.Join(slices.Concat(p.divided, p.unknown), " and ")
	p.hint = strings.Join(hints, "; ")
	return p
}

func (p *partial) As(to any) bool {
	if plain, ok := to.(**noEqual); ok {
		*plain = &p.noEqual
		return true
	}
	return false
}

// entity is what one end of a rule may be.
func (t *translator) entity(ref finding.Subject, rule string, e *calicoEntity, family *int) (all []far, err error) {
	within := everywhere
	texts := func(list []string) (found addresses, err error) {
		for _, text := range list {
			prefix, ok := parsePrefix(text)
			if !ok {
				return nil, unequal("the address range %q cannot be read", "correct it", text)
			}
			found = found.union(addressesOf(prefix))
		}
		return found, nil
	}
	if len(e.Nets) > 0 {
		if within, err = texts(e.Nets); err != nil {
			return nil, err
		}
	}
	excluded, err := texts(e.NotNets)
	if err != nil {
		return nil, err
	}
	if family != nil {
		one := everywhere[:1]
		if *family == 6 {
			one = everywhere[1:]
		}
		within = within.intersect(one)
	}
	own := ref.Namespace
	var unwanted []choice
	if e.NotSelector != "" {
		if unwanted, err = t.selected(ref, rule, "", "", e.NotSelector, "", nil); err != nil {
			return nil, err
		}
		sets, err := t.sets(ref, rule, "", "", e.NotSelector, "", nil)
		if err != nil {
			return nil, err
		}
		excluded = excluded.union(sets)
	}
	within = within.minus(excluded)
	accounts := ""
	var names []string
	if e.ServiceAccounts != nil {
		accounts, names = e.ServiceAccounts.Selector, e.ServiceAccounts.Names
	}
	all = anyFar()
	byAddress := within
	if e.Selector != "" || e.NamespaceSelector != "" || accounts != "" || len(names) > 0 ||
		e.NotSelector != "" && own != "" {
		if e.NamespaceSelector != "" {
			own = ""
		}
		pods, err := t.selected(ref, rule, own, e.NamespaceSelector, e.Selector, accounts, names)
		if err != nil {
			return nil, err
		}
		sets, err := t.sets(ref, rule, own, e.NamespaceSelector, e.Selector, accounts, names)
		if err != nil {
			return nil, err
		}
		all, byAddress = nil, within.intersect(sets)
		missing := &partial{}
		// Pods that the selector selects, if their addresses are within.
		for _, s := range pods {
			all = append(all, far{kind: farPods, pods: s})
		}
		all = t.located(all, within, missing)
		all = append(all, t.located(anyFar(), byAddress, missing)...)
		return t.except(all, unwanted), missing.err()
	}
	missing := &partial{}
	all = t.located(all, byAddress, missing)
	return t.except(all, unwanted), missing.err()
}

// located keeps of other ends those with an address in a set, and adds to missing which of them are not certain.
func (t *translator) located(all []far, within addresses, missing *partial) (found []far) {
	switch {
	case within.equal(everywhere):
		return all
	case len(within) == 0:
		return nil
	}
	add := func(to *[]string, whose string) {
		if !slices.Contains(*to, whose) {
			*to = append(*to, whose)
		}
	}
	for _, f := range all {
		switch f.kind {
		case farOutside:
			if f.ranges = f.ranges.intersect(within); len(f.ranges) > 0 {
				found = append(found, f)
			}
		case farPods, farNodes:
			whose, known := wherePods, t.pods
			if f.kind == farNodes {
				whose, known = whereNodes, t.nodes[t.direction]
			}
			switch held := within.holds(known); {
			case len(known) == 0:
				add(&missing.unknown, whose)
			case held == yes:
				found = append(found, f)
			case held == maybe:
				add(&missing.divided, whose)
			}
		}
	}
	return found
}

func (t *translator) except(all []far, unwanted []choice) (found []far) {
	for _, f := range all {
		if f.kind != farPods {
			found = append(found, f)
			continue
		}
		rest := []choice{f.pods}
		for _, u := range unwanted {
			var next []choice
			for _, s := range rest {
				next = append(next, s.minus(u)...)
			}
			rest = next
		}
		for _, s := range rest {
			found = append(found, far{kind: farPods, pods: s})
		}
	}
	return found
}

// sets are the addresses of the network sets that selectors select.
func (t *translator) sets(ref finding.Subject, rule, own, namespaces, pods, accounts string,
	names []string) (found addresses, err error) {
	ofNamespaces, err := namespaceSelector(namespaces)
	if err != nil {
		return nil, err
	}
	ofLabels, err := selector.Parse(pods)
	if err != nil {
		return nil, err
	}
	ofAccounts, err := selector.Parse(accounts)
	if err != nil {
		return nil, err
	}
	for _, one := range t.networks {
		if own != "" && own != one.in || !ofNamespaces.Matches(one.namespace) || !ofLabels.Matches(one.labels) ||
			!ofAccounts.Matches(nil) || len(names) > 0 {
			continue
		}
		for _, text := range one.nets {
			prefix, ok := parsePrefix(text)
			if !ok {
				return nil, unequal("a network set has the range %q, which cannot be read", "correct it", text)
			}
			found = found.union(addressesOf(prefix))
		}
		t.note(ref, rule, "the ranges of network sets are written into the policy as they are now: a set that changes "+
			"later is not followed")
	}
	return found, nil
}

// namespaceSelector parses a selector of namespaces. As in Calico, all() matches every namespace, and global() matches
// what has no namespace.
func namespaceSelector(text string) (*selector.Selector, error) {
	return selector.Parse(strings.NewReplacer("all()", "has("+calicoNamespaceLabel+")", "global()",
		"!has("+calicoNamespaceLabel+")").Replace(text))
}

// selected is the pods that match all selectors: of namespaces, pods and service accounts (or their names).
func (t *translator) selected(ref finding.Subject, rule, own, namespaces, pods, accounts string,
	names []string) ([]choice, error) {
	found := []choice{{}}
	if own != "" {
		found = []choice{{ciliumNamespace: {kind: oneOf, values: []string{own}}}}
	}
	meet := func(all []choice, err error) error {
		var both []choice
		for _, a := range found {
			for _, b := range all {
				if s, ok := a.and(b); ok {
					both = append(both, s)
				}
			}
		}
		found = both
		return err
	}
	if namespaces != "" {
		parsed, err := namespaceSelector(namespaces)
		if err == nil {
			err = meet(selections(parsed, "namespaceSelector", namespaceKey))
		}
		if err != nil {
			return nil, err
		}
	}
	parsed, err := selector.Parse(pods)
	if err == nil {
		err = meet(selections(parsed, "selector", podKey))
	}
	if err != nil {
		return nil, err
	}
	if accounts != "" {
		parsed, err := selector.Parse(accounts)
		if err == nil {
			err = meet(t.accountsOf(ref, rule, parsed))
		}
		if err != nil {
			return nil, err
		}
	}
	if len(names) > 0 {
		sorted := slices.Compact(slices.Sorted(slices.Values(names)))
		_ = meet([]choice{{ciliumAccount: {kind: oneOf, values: sorted}}}, nil)
	}
	return found, nil
}

// accountsOf is the pods whose service account a selector selects. Cilium knows the names of accounts only.
func (t *translator) accountsOf(ref finding.Subject, rule string, of *selector.Selector) (all []choice, err error) {
	if !slices.ContainsFunc(of.Keys(), func(key string) bool { return key != calicoName }) {
		return selections(of, "service "+
			"accounts", func(string) (string, string, error) { return ciliumAccount, "", nil })
	}
	if !t.accountsKnown {
		return nil, unequal("it selects service accounts by labels, and these are not in the input",
			"add the service accounts to the input: kubectl get serviceaccounts -A -o yaml")
	}
	byNamespace := map[string][]string{}
	for full, labels := range t.accountOf {
		namespace, name, _ := strings.Cut(full, "/")
		seen := map[string]string{calicoName: name}
		for key, value := range labels {
			seen[key] = value
		}
		if of.Matches(seen) {
			byNamespace[namespace] = append(byNamespace[namespace], name)
		}
	}
	for namespace, names := range byNamespace {
		slices.Sort(names)
		all = append(all, choice{ciliumNamespace: {kind: oneOf, values: []string{namespace}},
			ciliumAccount: {kind: oneOf, values: names}})
	}
	slices.SortFunc(all, func(a, b choice) int { return cmp.Compare(a.String(), b.String()) })
	t.note(ref, rule, "service accounts are written into the policy by name, as their labels are now: labels that "+
		"change later are not followed")
	return all, nil
}

// A naming returns Cilium's name of a label, or the only value that the label has.
type naming func(key string) (name, value string, err error)

func podKey(key string) (string, string, error) {
	switch {
	case key == calicoNamespaceLabel:
		return ciliumNamespace, "", nil
	case key == calicoAccount, key == calicoOfAccount+calicoName:
		return ciliumAccount, "", nil
	case key == calicoOrchestrator:
		return "", "k8s", nil
	case strings.HasPrefix(key, calicoOfNamespace):
		return namespaceKey(strings.TrimPrefix(key, calicoOfNamespace))
	case strings.HasPrefix(key, calicoOfAccount):
		return "", "", unequal("it uses the label %s of service accounts; Cilium knows only their names",
			"select service accounts by name", key)
	case hidden(key):
		return "", "", unequal("Cilium leaves the label %s out of a pod's identity, so that no policy can use it",
			"use another label, or change Cilium's setting labels", key)
	}
	return key, "", nil
}

func namespaceKey(key string) (string, string, error) {
	if key == calicoName || key == calicoNamespaceLabel {
		return ciliumNamespace, "", nil
	}
	return ciliumOfNamespace + key, "", nil
}

// unseen are the labels that Cilium leaves out of identities by default (pkg/labelsfilter of v1.18).
var unseen = regexp.MustCompile(`^(io\.kubernetes|kubernetes\.io|statefulset\.kubernetes\.io/pod-name|` +
	`apps\.kubernetes\.io/pod-index|batch\.kubernetes\.io/job-completion-index|batch\.kubernetes\.io/controller-uid|` +
	`.*beta\.kubernetes\.io|k8s\.io|pod-template-generation|pod-template-hash|controller-revision-hash|annotation|` +
	`controller-uid|etcd_node)`)

func hidden(key string) bool { return unseen.MatchString(key) }

// selections converts a selector.
func selections(from *selector.Selector, what string, naming naming) (all []choice, err error) {
	alternatives, err := from.Terms()
	if err != nil {
		return nil, unequal("its %s %q has no equivalent: %v", "list the values: label in {'a', "+
			"'b'}", what, from.Text(), err)
	}
	for _, terms := range alternatives {
		s, possible := choice{}, true
		for _, term := range terms {
			one, ok, err := selectionOf(term, naming)
			if err != nil {
				return nil, err
			}
			if possible = possible && ok; possible {
				s, possible = s.and(one)
			}
		}
		if possible {
			all = append(all, s)
		}
	}
	return all, nil
}

// selectionOf converts one term; false if no pod meets it.
func selectionOf(term selector.Term, naming naming) (s choice, ok bool, err error) {
	key, only, err := naming(term.Key)
	if err != nil {
		return nil, false, err
	}
	has := only != "" && slices.Contains(term.Values, only)
	switch term.Operator {
	case selector.In:
		ok = has
	case selector.NotIn:
		ok = !has
	case selector.Exists:
		ok = true
	}
	if only != "" {
		return choice{}, ok, nil
	}
	// Of a label or value that Kubernetes does not permit, no pod has one.
	if len(validation.IsQualifiedName(strings.TrimPrefix(key, ciliumOfNamespace))) > 0 {
		return choice{}, term.Operator == selector.NotIn || term.Operator == selector.DoesNotExist, nil
	}
	values := slices.DeleteFunc(slices.Clone(term.Values), func(v string) bool {
		return len(validation.IsValidLabelValue(v)) > 0
	})
	slices.Sort(values)
	switch term.Operator {
	case selector.In:
		return choice{key: {kind: oneOf, values: values}}, len(values) > 0, nil
	case selector.NotIn:
		if len(values) == 0 {
			return choice{}, true, nil
		}
		return choice{key: {values: values}}, true, nil
	case selector.Exists:
		return choice{key: {present: true}}, true, nil
	}
	return choice{key: {kind: absent}}, true, nil
}

// kubeOrigin reads a NetworkPolicy, which Cilium enforces itself: its rules matter for the policies around it. A part
// that cannot be read is left out: the model judges it.
func (t *translator) kubeOrigin(object *networkingv1.NetworkPolicy, tier int) *origin {
	ref := finding.Subject{Kind: "NetworkPolicy", Namespace: object.Namespace, Name: object.Name}
	own := choice{ciliumNamespace: {kind: oneOf, values: []string{object.Namespace}}}
	o := &origin{kube: true, policy: policy{ref: ref, tier: tier, order: calicoOrder,
		key: object.Namespace + "/knp.default." + object.Name}}
	subject, ok := kubeSelection(&object.Spec.PodSelector, "")
	if subject, ok = both(subject, own, ok); !ok {
		return nil
	}
	o.subjects = []choice{subject}
	for _, d := range typesOf(&object.Spec) {
		o.governs[d] = true
	}
	add := func(d Direction, i int, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		if !o.governs[d] {
			return
		}
		it := &item{of: o, name: fmt.Sprintf("%s rule %d", d, i+1), action: allow}
		fars := anyFar()
		if len(peers) > 0 {
			fars = nil
		}
		if slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return excludesOnly(&p) }) {
			t.refuse(ref, it.name, unequal("a namespaceSelector only excludes: Cilium before 1.19, and later where "+
				"policyDefaultLocalCluster is false, also selects nodes and addresses outside of the cluster by it",
				"add {key: kubernetes.io/metadata.name, operator: Exists} to its matchExpressions"))
		}
		for i := range peers {
			fars = append(fars, kubeFars(&peers[i], own)...)
		}
		for _, f := range fars {
			for _, door := range kubeDoors(ports) {
				it.boxes = append(it.boxes, box{subject, f, door})
			}
		}
		o.items[d] = append(o.items[d], it)
	}
	for i, r := range object.Spec.Ingress {
		add(Ingress, i, r.From, r.Ports)
	}
	for i, r := range object.Spec.Egress {
		add(Egress, i, r.To, r.Ports)
	}
	return o
}

func both(a, b choice, ok bool) (choice, bool) {
	if !ok {
		return nil, false
	}
	return a.and(b)
}

func kubeFars(peer *networkingv1.NetworkPolicyPeer, own choice) []far {
	if peer.IPBlock != nil { // for Cilium, only addresses outside of the cluster
		ranges := addresses{}
		if prefix, ok := parsePrefix(peer.IPBlock.CIDR); ok {
			ranges = addressesOf(prefix)
		}
		for _, text := range peer.IPBlock.Except {
			if prefix, ok := parsePrefix(text); ok {
				ranges = ranges.minus(addressesOf(prefix))
			}
		}
		if len(ranges) == 0 {
			return nil
		}
		return []far{{kind: farOutside, ranges: ranges}}
	}
	in, ok := own, true
	if peer.NamespaceSelector != nil {
		in, ok = kubeSelection(peer.NamespaceSelector, ciliumOfNamespace)
	}
	if peer.PodSelector != nil && ok {
		pods, possible := kubeSelection(peer.PodSelector, "")
		in, ok = both(pods, in, possible)
	}
	if !ok {
		return nil
	}
	return []far{{kind: farPods, pods: in}}
}

func kubeSelection(from *metav1.LabelSelector, prefix string) (s choice, ok bool) {
	s, ok = choice{}, true
	add := func(key string, c condition) {
		if ok {
			s, ok = s.and(choice{prefix + key: c})
		}
	}
	for key, value := range from.MatchLabels {
		add(key, condition{kind: oneOf, values: []string{value}})
	}
	for _, e := range from.MatchExpressions {
		values := slices.Compact(slices.Sorted(slices.Values(e.Values)))
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			add(e.Key, condition{kind: oneOf, values: values})
		case metav1.LabelSelectorOpNotIn:
			add(e.Key, condition{values: values})
		case metav1.LabelSelectorOpExists:
			add(e.Key, condition{present: true})
		case metav1.LabelSelectorOpDoesNotExist:
			add(e.Key, condition{kind: absent})
		}
	}
	return s, ok
}

func kubeDoors(ports []networkingv1.NetworkPolicyPort) (all []door) {
	if len(ports) == 0 {
		return []door{{ports: everything}}
	}
	var numbers spans
	for _, port := range ports {
		protocol := 0
		if port.Protocol != nil {
			protocol = protocolAt(*port.Protocol)
		}
		switch {
		case port.Port == nil:
			numbers = numbers.union(protocolPorts(protocol, firstPort, lastPort))
		case port.Port.Type == intstr.String:
			all = append(all, door{name: namedPort{protocol, port.Port.StrVal}})
		default:
			last := port.Port.IntValue()
			if port.EndPort != nil {
				last = int(*port.EndPort)
			}
			numbers = numbers.union(protocolPorts(protocol, port.Port.IntValue(), last))
		}
	}
	if len(numbers) > 0 {
		all = append(all, door{ports: numbers})
	}
	return all
}
