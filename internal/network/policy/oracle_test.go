package policy

import (
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
)

// oracle decides one connection at a time, by reading the policies from their texts: no classes, no sets, no
// ranges of ports.
type oracle struct {
	snapshot *cluster.Snapshot
	profile  Profile
	// addressOf are the pods' addresses under the profile.
	addressOf map[string]netip.Addr
}

// hit is what one list of rules says: an action, or nothing.
type hit string

func (o oracle) allows(from, to *corev1.Pod, port Port) bool {
	own := (from.Spec.HostNetwork || to.Spec.HostNetwork) && from.Spec.NodeName == to.Spec.NodeName
	if from == to || own && (from.Spec.HostNetwork && o.profile.Dialect != Cilium || o.profile.CNI == "kindnet") {
		return true
	}
	return o.direction(Egress, from, to, to, port) && o.direction(Ingress, to, from, to, port)
}

func (o oracle) direction(d Direction, subject, other, listener *corev1.Pod, port Port) bool {
	if subject.Spec.HostNetwork {
		return true
	}
	switch o.profile.Dialect {
	case Kubernetes:
		selected, allowed := o.networkPolicies(d, subject, other, listener, port)
		return allowed || !selected
	case Calico:
		return o.calico(d, subject, other, listener, port)
	case Cilium:
		return o.cilium(d, subject, other, listener, port)
	}
	return true
}

func (o oracle) networkPolicies(d Direction, subject, other, listener *corev1.Pod, port Port) (selected, allowed bool) {
	for i := range o.snapshot.NetworkPolicies {
		s, a := o.networkPolicy(&o.snapshot.NetworkPolicies[i], d, subject, other, listener, port)
		selected, allowed = selected || s, allowed || a
	}
	return selected, allowed
}

func (o oracle) networkPolicy(np *networkingv1.NetworkPolicy, d Direction, subject, other, listener *corev1.Pod,
	port Port) (selected, allowed bool) {
	kind := networkingv1.PolicyTypeIngress
	if d == Egress {
		kind = networkingv1.PolicyTypeEgress
	}
	if np.Namespace != subject.Namespace || !selects(&np.Spec.PodSelector, subject.Labels) ||
		!slices.Contains(np.Spec.PolicyTypes, kind) {
		return false, false
	}
	if d == Ingress {
		for _, r := range np.Spec.Ingress {
			allowed = allowed || o.peers(np.Namespace, r.From, other) && ports(r.Ports, listener, port)
		}
	} else {
		for _, r := range np.Spec.Egress {
			allowed = allowed || o.peers(np.Namespace, r.To, other) && ports(r.Ports, listener, port)
		}
	}
	return true, allowed
}

func selects(s *metav1.LabelSelector, set map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && parsed.Matches(labels.Set(set))
}

func (o oracle) namespace(name string) map[string]string {
	for i := range o.snapshot.Namespaces {
		if o.snapshot.Namespaces[i].Name == name {
			return o.snapshot.Namespaces[i].Labels
		}
	}
	return nil
}

func (o oracle) address(pod *corev1.Pod) netip.Addr {
	if a, ok := o.addressOf[pod.Namespace+"/"+pod.Name]; ok {
		return a
	}
	return netip.MustParseAddr(pod.Status.PodIP)
}

func (o oracle) peers(namespace string, peers []networkingv1.NetworkPolicyPeer, other *corev1.Pod) bool {
	for _, p := range peers {
		switch {
		case p.IPBlock != nil:
			if o.profile.Dialect == Cilium {
				continue
			}
			in := netip.MustParsePrefix(p.IPBlock.CIDR).Contains(o.address(other))
			for _, e := range p.IPBlock.Except {
				in = in && !netip.MustParsePrefix(e).Contains(o.address(other))
			}
			if in {
				return true
			}
		case other.Spec.HostNetwork:
			// Cilium adds a namespace to a selector only if it is empty or missing.
			none := map[string]string{}
			if in := p.NamespaceSelector; o.profile.Dialect == Cilium && in != nil &&
				len(in.MatchLabels)+len(in.MatchExpressions) > 0 && selects(in, none) &&
				(p.PodSelector == nil || selects(p.PodSelector, none)) {
				return true
			}
		case p.NamespaceSelector == nil && namespace != other.Namespace:
		case p.NamespaceSelector != nil && !selects(p.NamespaceSelector, o.namespace(other.Namespace)):
		case p.PodSelector == nil || selects(p.PodSelector, other.Labels):
			return true
		}
	}
	return len(peers) == 0
}

func ports(ports []networkingv1.NetworkPolicyPort, listener *corev1.Pod, port Port) bool {
	for _, p := range ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if protocol != port.Protocol {
			continue
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			if isNamed(listener, p.Port.StrVal, port) {
				return true
			}
		case p.EndPort != nil:
			if p.Port.IntValue() <= port.Number && port.Number <= int(*p.EndPort) {
				return true
			}
		case p.Port.IntValue() == port.Number:
			return true
		}
	}
	return len(ports) == 0
}

func isNamed(pod *corev1.Pod, name string, port Port) bool {
	if pod.Spec.HostNetwork {
		return false
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name && p.Protocol == port.Protocol && int(p.ContainerPort) == port.Number {
				return true
			}
		}
	}
	return false
}

// ordered is one of Calico's policies, or a NetworkPolicy where Calico puts it.
type ordered struct {
	tier, key string
	order     float64
	decide    func() (selected bool, h hit)
}

func (o oracle) calico(d Direction, subject, other, listener *corev1.Pod, port Port) bool {
	var all []ordered
	for i := range o.snapshot.NetworkPolicies {
		np := &o.snapshot.NetworkPolicies[i]
		all = append(all, ordered{"default", np.Namespace + "/knp.default." + np.Name, 1000, func() (bool, hit) {
			s, a := o.networkPolicy(np, d, subject, other, listener, port)
			if a {
				return s, "Allow"
			}
			return s, ""
		}})
	}
	for _, kind := range []string{"NetworkPolicy", "GlobalNetworkPolicy"} {
		for _, object := range o.snapshot.OtherOf("projectcalico.org", kind) {
			var spec calicoSpec
			if err := decode(object, "spec", &spec); err != nil {
				panic(err)
			}
			ns := object.GetNamespace()
			one := ordered{"default", object.GetName(), math.Inf(1), func() (bool, hit) {
				return o.calicoPolicy(spec, ns, d, subject, other, listener, port)
			}}
			if spec.Order != nil {
				one.order = *spec.Order
			}
			if spec.Tier != "" {
				one.tier = spec.Tier
			}
			one.key = one.tier + "." + one.key
			if ns != "" {
				one.key = ns + "/" + one.key
			}
			all = append(all, one)
		}
	}
	tiers := map[string]float64{"default": 1e6}
	passes := map[string]bool{}
	for _, object := range o.snapshot.OtherOf("projectcalico.org", "Tier") {
		var spec calicoTier
		if err := decode(object, "spec", &spec); err != nil {
			panic(err)
		}
		tiers[object.GetName()], passes[object.GetName()] = *spec.Order, spec.DefaultAction == "Pass"
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if tiers[a.tier] != tiers[b.tier] {
			return tiers[a.tier] < tiers[b.tier]
		}
		if a.order != b.order {
			return a.order < b.order
		}
		return a.key < b.key
	})
	for i := 0; i < len(all); {
		tier, any, passed := all[i].tier, false, false
		for ; i < len(all) && all[i].tier == tier; i++ {
			if passed {
				continue
			}
			selected, h := all[i].decide()
			any = any || selected
			switch h {
			case "Allow":
				return true
			case "Deny":
				return false
			case "Pass":
				passed = true
			}
		}
		if any && !passed && !passes[tier] {
			return false
		}
	}
	return true
}

// seenByCalico are the labels of a workload endpoint, as libcalico-go makes them.
func (o oracle) seenByCalico(pod *corev1.Pod) map[string]string {
	seen := map[string]string{"projectcalico.org/namespace": pod.Namespace, "projectcalico.org/orchestrator": "k8s",
		"projectcalico.org/serviceaccount": pod.Spec.ServiceAccountName, "pcns.projectcalico.org/name": pod.Namespace}
	for k, v := range pod.Labels {
		seen[k] = v
	}
	for k, v := range o.namespace(pod.Namespace) {
		seen["pcns."+k] = v
	}
	return seen
}

// combined is the one selector that Calico makes of several (libcalico-go's getEndpointSelector).
func combined(namespaces, pods, account, ns string) string {
	var parts []string
	switch {
	case namespaces != "":
		text := strings.ReplaceAll(namespaces, "all()", "has(NAMESPACE)")
		parsed := must(selector.Parse(text))
		for _, key := range parsed.Keys() {
			if key != "NAMESPACE" {
				text = must(selector.Parse(text)).Rename(map[string]string{key: "pcns." + key}).Text()
			}
		}
		parts = append(parts, strings.ReplaceAll(text, "NAMESPACE", "projectcalico.org/namespace"))
	case ns != "":
		parts = append(parts, "projectcalico.org/namespace == '"+ns+"'")
	}
	if account != "" {
		parts = append(parts, account)
	}
	if pods != "" {
		parts = append(parts, pods)
	}
	return "(" + strings.Join(parts, ") && (") + ")"
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (o oracle) calicoMatches(text string, pod *corev1.Pod) bool {
	if text == "()" {
		text = ""
	}
	parsed := must(selector.Parse(text))
	if isStranger(pod) { // has the labels of each set with its address
		return slices.ContainsFunc(o.snapshot.OtherOf("projectcalico.org", "GlobalNetworkSet"),
			func(set unstructured.Unstructured) bool {
				nets, _, _ := unstructured.NestedStringSlice(set.Object, "spec", "nets")
				return parsed.Matches(set.GetLabels()) && slices.ContainsFunc(nets, func(text string) bool {
					return netip.MustParsePrefix(text).Contains(o.address(pod))
				})
			})
	}
	return !pod.Spec.HostNetwork && parsed.Matches(o.seenByCalico(pod))
}

func (o oracle) calicoPolicy(spec calicoSpec, ns string, d Direction, subject, other,
	listener *corev1.Pod, port Port) (bool, hit) {
	if !slices.Contains(spec.Types, []string{"Ingress", "Egress"}[d]) ||
		!o.calicoMatches(combined(spec.NamespaceSelector, spec.Selector, "", ns), subject) {
		return false, ""
	}
	rules, source, target := spec.Ingress, other, subject
	if d == Egress {
		rules, source, target = spec.Egress, subject, other
	}
	for _, r := range rules {
		if r.IPVersion != nil && (*r.IPVersion == 4) != o.address(other).Is4() {
			continue
		}
		if r.Action != "Log" && o.calicoEntity(r.Source, ns, source) && o.calicoEntity(r.Destination, ns, target) &&
			calicoPorts(r, listener, port) {
			return true, hit(r.Action)
		}
	}
	return true, ""
}

func (o oracle) calicoEntity(e calicoEntity, ns string, pod *corev1.Pod) bool {
	account := ""
	if e.ServiceAccounts != nil {
		account = "projectcalico.org/serviceaccount in {'" + strings.Join(e.ServiceAccounts.Names, "','") + "'}"
	}
	if (e.Selector != "" || e.NamespaceSelector != "" || account != "" || e.NotSelector != "" && ns != "") &&
		!o.calicoMatches(combined(e.NamespaceSelector, e.Selector, account, ns), pod) {
		return false
	}
	if e.NotSelector != "" && o.calicoMatches(e.NotSelector, pod) {
		return false
	}
	in := func(nets []string) bool {
		return slices.ContainsFunc(nets, func(n string) bool {
			return netip.MustParsePrefix(n).Contains(o.address(pod))
		})
	}
	return (len(e.Nets) == 0 || in(e.Nets)) && (len(e.NotNets) == 0 || !in(e.NotNets))
}

func calicoPorts(r calicoRule, listener *corev1.Pod, port Port) bool {
	if r.Protocol != nil && r.Protocol.StrVal != string(port.Protocol) {
		return false
	}
	in := func(list []intstr.IntOrString) bool {
		for _, p := range list {
			from, to, ranged := strings.Cut(p.String(), ":")
			first, err := strconv.Atoi(from)
			if err != nil {
				if isNamed(listener, p.String(), port) {
					return true
				}
				continue
			}
			last := first
			if ranged {
				last = must(strconv.Atoi(to))
			}
			if first <= port.Number && port.Number <= last {
				return true
			}
		}
		return false
	}
	return (len(r.Destination.Ports) == 0 || in(r.Destination.Ports)) && !in(r.Destination.NotPorts)
}

func (o oracle) cilium(d Direction, subject, other, listener *corev1.Pod, port Port) bool {
	isolated, allowed := o.networkPolicies(d, subject, other, listener, port)
	for _, kind := range []string{"CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"} {
		for _, one := range ciliumSpecs(o.snapshot.OtherOf("cilium.io", kind)) {
			spec, ns := one.ciliumSpec, one.namespace
			if ns != "" && ns != subject.Namespace ||
				!selects(completed(spec.EndpointSelector, ns), o.seenByCilium(subject)) {
				continue
			}
			allows, denies, isolate := spec.Ingress, spec.IngressDeny, spec.EnableDefaultDeny.Ingress
			if d == Egress {
				allows, denies, isolate = spec.Egress, spec.EgressDeny, spec.EnableDefaultDeny.Egress
			}
			for _, r := range denies {
				if o.ciliumRule(r, ns, subject, other) && ciliumRulePorts(r, listener, port) {
					return false
				}
			}
			for _, r := range allows {
				allowed = allowed || o.ciliumRule(r, ns, subject, other) && ciliumRulePorts(r, listener, port)
			}
			if isolate != nil {
				isolated = isolated || *isolate
			} else {
				isolated = isolated || len(allows)+len(denies) > 0
			}
		}
	}
	if d == Ingress && other.Spec.HostNetwork && other.Spec.NodeName == subject.Spec.NodeName {
		return true // nothing denies it
	}
	return allowed || !isolated
}

type ciliumOne struct {
	ciliumSpec
	namespace string
}

func ciliumSpecs(objects []unstructured.Unstructured) (all []ciliumOne) {
	for _, object := range objects {
		var specs []ciliumSpec
		if object.Object["specs"] != nil {
			if err := decode(object, "specs", &specs); err != nil {
				panic(err)
			}
		} else {
			specs = make([]ciliumSpec, 1)
			if err := decode(object, "spec", &specs[0]); err != nil {
				panic(err)
			}
		}
		for _, spec := range specs {
			all = append(all, ciliumOne{spec, object.GetNamespace()})
		}
	}
	return all
}

func (o oracle) seenByCilium(pod *corev1.Pod) map[string]string {
	seen := map[string]string{"io.kubernetes.pod.namespace": pod.Namespace}
	if pod.Spec.ServiceAccountName != "" {
		seen["io.cilium.k8s.policy.serviceaccount"] = pod.Spec.ServiceAccountName
	}
	for k, v := range pod.Labels {
		seen[k] = v
	}
	for k, v := range o.namespace(pod.Namespace) {
		seen["io.cilium.k8s.namespace.labels."+k] = v
	}
	return seen
}

// completed is a peer's selector as the agent changes it (pkg/k8s/apis/cilium.io/utils of v1.18): ns is the namespace
// of the policy, or empty.
func completed(s *metav1.LabelSelector, ns string) *metav1.LabelSelector {
	s = s.DeepCopy()
	var exact, labels bool
	look := func(key string) {
		key = strings.TrimPrefix(key, "k8s:")
		exact = exact || key == "io.kubernetes.pod.namespace"
		labels = labels || strings.HasPrefix(key, "io.cilium.k8s.namespace.labels.")
	}
	plain := map[string]string{}
	for key, value := range s.MatchLabels {
		look(key)
		plain[strings.TrimPrefix(key, "k8s:")] = value
	}
	s.MatchLabels = plain
	for i := range s.MatchExpressions {
		e := &s.MatchExpressions[i]
		look(e.Key)
		e.Key = strings.TrimPrefix(e.Key, "k8s:")
	}
	switch {
	case exact:
	case ns == "":
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "io.kubernetes.pod.namespace", Operator: metav1.LabelSelectorOpExists})
	case !labels:
		s.MatchLabels["io.kubernetes.pod.namespace"] = ns
	}
	return s
}

// stranger is an address outside of the cluster, in the form of a pod that no policy selects.
func stranger(address string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: address}}
	p.Spec.HostNetwork, p.Spec.NodeName, p.Status.PodIP = true, outsideNode, address
	return p
}

const outsideNode = "outside of the cluster"

func isStranger(pod *corev1.Pod) bool { return pod.Spec.NodeName == outsideNode }

func (o oracle) ciliumRule(r ciliumRule, ns string, subject, other *corev1.Pod) bool {
	said := false
	for _, list := range [][]metav1.LabelSelector{r.FromEndpoints, r.ToEndpoints} {
		said = said || list != nil
		for i := range list {
			seen := map[string]string{} // nodes and addresses outside have none of a pod's labels
			if !other.Spec.HostNetwork {
				seen = o.seenByCilium(other)
			}
			if selects(completed(&list[i], ns), seen) {
				return true
			}
		}
	}
	for _, list := range [][]json.RawMessage{r.FromCIDRSet, r.ToCIDRSet} {
		said = said || list != nil
		for _, raw := range list {
			var block struct {
				CIDR   string
				Except []string
			}
			if err := json.Unmarshal(raw, &block); err != nil {
				panic(err)
			}
			in := func(text string) bool { return netip.MustParsePrefix(text).Contains(o.address(other)) }
			if isStranger(other) && in(block.CIDR) && !slices.ContainsFunc(block.Except, in) {
				return true
			}
		}
	}
	for _, list := range [][]string{r.FromEntities, r.ToEntities} {
		said = said || list != nil
		for _, e := range list {
			switch stranger := isStranger(other); e {
			case "all":
				return true
			case "world":
				if stranger {
					return true
				}
			case "cluster":
				if !stranger {
					return true
				}
			case "remote-node", "host":
				if own := other.Spec.NodeName == subject.Spec.NodeName; other.Spec.HostNetwork && !stranger &&
					own == (e == "host") {
					return true
				}
			}
		}
	}
	for _, list := range [][]string{r.FromCIDR, r.ToCIDR} {
		said = said || list != nil
		if isStranger(other) && slices.ContainsFunc(list, func(text string) bool {
			return netip.MustParsePrefix(text).Contains(o.address(other))
		}) {
			return true
		}
	}
	return !said && len(r.ToPorts) > 0
}

func ciliumRulePorts(r ciliumRule, listener *corev1.Pod, port Port) bool {
	for _, list := range r.ToPorts {
		for _, p := range list.Ports {
			if p.Protocol != string(port.Protocol) {
				continue
			}
			first, err := strconv.Atoi(p.Port.String())
			if err == nil && first == 0 {
				return true
			}
			if err != nil && isNamed(listener, p.Port.String(), port) ||
				err == nil && first <= port.Number && port.Number <= max(first, p.EndPort) {
				return true
			}
		}
	}
	return len(r.ToPorts) == 0 && len(r.ICMPs) == 0
}
