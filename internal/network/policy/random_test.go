package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// dice makes random clusters, small and with few names, so that policies meet.
type dice struct{ *rand.Rand }

func (d dice) one(of ...string) string { return of[d.IntN(len(of))] }

func (d dice) often(percent int) bool { return d.IntN(100) < percent }

func (d dice) labels() map[string]string {
	set := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if d.often(75) {
			set[key] = d.one("a", "b", "c")
		}
	}
	return set
}

func (d dice) cluster() *cluster.Snapshot {
	s := &cluster.Snapshot{}
	for i := range 3 {
		s.Namespaces = append(s.Namespaces,
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: d.labels()}})
	}
	for i := range 4 + d.IntN(6) {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.one("n0", "n1", "n2"),
			Name: fmt.Sprintf("p%d", i), Labels: d.labels()}}
		pod.Labels["unseen"] = fmt.Sprint(i)
		pod.Spec.NodeName = d.one("node-a", "node-b")
		pod.Spec.ServiceAccountName = d.one("sa", "sb")
		pod.Status.PodIP = fmt.Sprintf("10.0.%d.%d", d.IntN(3), i+1)
		if d.often(15) {
			pod.Spec.HostNetwork, pod.Status.PodIP = true, map[string]string{"node-a": "192.168.0.1",
				"node-b": "192.168.0.2"}[pod.Spec.NodeName]
		}
		pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "web", Protocol: corev1.ProtocolTCP, ContainerPort: int32(80 + d.IntN(3))}}}}
		s.Pods = append(s.Pods, pod)
	}
	for i := range d.IntN(5) {
		s.NetworkPolicies = append(s.NetworkPolicies, d.networkPolicy(i))
	}
	for i := range d.IntN(4) {
		s.Other = append(s.Other, d.calicoPolicy(i))
	}
	for i := range d.IntN(4) {
		s.Other = append(s.Other, d.ciliumPolicy(i))
	}
	s.Other = append(s.Other,
		object("projectcalico.org/v3", "Tier", "", "early",
			map[string]any{"order": 10, "defaultAction": d.one("Deny", "Pass")}),
		object("projectcalico.org/v3", "Tier", "", "late", map[string]any{"order": 2e6}))
	return s
}

func object(version, kind, namespace, name string, spec map[string]any) unstructured.Unstructured {
	o := unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "spec": spec}}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func (d dice) selector() metav1.LabelSelector {
	s := metav1.LabelSelector{}
	if d.often(50) {
		s.MatchLabels = map[string]string{d.one("app", "tier"): d.one("a", "b", "c")}
	}
	if d.often(30) {
		e := metav1.LabelSelectorRequirement{Key: d.one("app", "tier"),
			Operator: metav1.LabelSelectorOperator(d.one("In", "NotIn", "Exists", "DoesNotExist"))}
		if e.Operator == "In" || e.Operator == "NotIn" {
			e.Values = []string{d.one("a", "b"), "c"}[:1+d.IntN(2)]
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func (d dice) net() string {
	return d.one("10.0.0.0/16", "10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/30", "192.168.0.0/24",
		"0.0.0.0/0", "10.9.0.0/16")
}

func (d dice) networkPolicy(i int) networkingv1.NetworkPolicy {
	np := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: d.one("n0", "n1", "n2"),
		Name: fmt.Sprintf("k%d", i)}}
	np.Spec.PodSelector = d.selector()
	np.Spec.PolicyTypes = [][]networkingv1.PolicyType{{"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}[d.IntN(3)]
	for range d.IntN(3) {
		np.Spec.Ingress = append(np.Spec.Ingress,
			networkingv1.NetworkPolicyIngressRule{From: d.peers(), Ports: d.ports()})
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: d.peers(), Ports: d.ports()})
	}
	return np
}

func (d dice) peers() (peers []networkingv1.NetworkPolicyPeer) {
	for range d.IntN(3) {
		var p networkingv1.NetworkPolicyPeer
		a, b := d.selector(), d.selector()
		switch d.IntN(4) {
		case 0:
			p.IPBlock = &networkingv1.IPBlock{CIDR: d.net()}
			if d.often(40) {
				p.IPBlock.Except = []string{d.net()}
			}
		case 1:
			p.PodSelector = &a
		case 2:
			p.NamespaceSelector = &a
		default:
			p.PodSelector, p.NamespaceSelector = &a, &b
		}
		peers = append(peers, p)
	}
	return peers
}

func (d dice) ports() (ports []networkingv1.NetworkPolicyPort) {
	for range d.IntN(3) {
		var p networkingv1.NetworkPolicyPort
		if d.often(60) {
			protocol := corev1.Protocol(d.one("TCP", "UDP", "SCTP"))
			p.Protocol = &protocol
		}
		if d.often(80) {
			port := intstr.FromInt(80 + d.IntN(3))
			if d.often(25) {
				port = intstr.FromString("web")
			} else if d.often(25) {
				end := int32(82)
				p.EndPort = &end
			}
			p.Port = &port
		}
		ports = append(ports, p)
	}
	return ports
}

func (d dice) calicoSelector() string {
	return d.one("", "all()", "app == 'a'", "tier != 'b'", "has(app)", "!has(tier)", "app in {'a','b'} && tier == 'c'",
		"app == 'a' || tier == 'a'", "projectcalico.org/namespace == 'n1'",
		"pcns.app == 'a'", "projectcalico.org/serviceaccount == 'sa'", "tier not in {'a'}",
		"projectcalico.org/namespace != 'n1'")
}

func (d dice) calicoPolicy(i int) unstructured.Unstructured {
	spec := map[string]any{"selector": d.calicoSelector(),
		"types": [][]any{{"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}[d.IntN(3)]}
	if d.often(70) {
		spec["order"] = []any{5, 999.5, 1000, 1000, 2000}[d.IntN(5)]
	}
	if d.often(40) {
		spec["tier"] = d.one("default", "early", "late")
	}
	for _, list := range []string{"ingress", "egress"} {
		var rules []any
		for range d.IntN(4) {
			rules = append(rules, d.calicoRule())
		}
		spec[list] = rules
	}
	if d.often(50) {
		return object("projectcalico.org/v3", "NetworkPolicy", d.one("n0", "n1", "n2"), fmt.Sprintf("c%d", i), spec)
	}
	if d.often(40) {
		spec["namespaceSelector"] = d.one("app == 'a'", "all()", "tier != 'a'", "projectcalico.org/name == 'n0'")
	}
	return object("projectcalico.org/v3", "GlobalNetworkPolicy", "", fmt.Sprintf("g%d", i), spec)
}

func (d dice) calicoRule() map[string]any {
	rule := map[string]any{"action": d.one("Allow", "Allow", "Deny", "Pass", "Log")}
	target := d.calicoEntity()
	if d.often(50) {
		rule["protocol"] = d.one("TCP", "UDP", "SCTP")
		if d.often(70) {
			target["ports"] = []any{[]any{80, 81, "web", "80:81"}[d.IntN(4)]}
		}
		if d.often(20) {
			target["notPorts"] = []any{[]any{81, "web"}[d.IntN(2)]}
		}
	}
	rule["source"], rule["destination"] = d.calicoEntity(), target
	return rule
}

func (d dice) calicoEntity() map[string]any {
	e := map[string]any{}
	if d.often(40) {
		e["selector"] = d.calicoSelector()
	}
	if d.often(15) {
		e["notSelector"] = d.one("app == 'a'", "has(tier)")
	}
	if d.often(20) {
		e["namespaceSelector"] = d.one("app == 'a'", "all()", "has(tier)", "tier != 'b'",
			"projectcalico.org/name != 'n0'", "projectcalico.org/name not in {'n0','n1'}")
	}
	if d.often(10) {
		e["serviceAccounts"] = map[string]any{"names": []any{"sa"}}
	}
	return e
}

func (d dice) ciliumPolicy(i int) unstructured.Unstructured {
	spec := map[string]any{"endpointSelector": d.ciliumSelector(false)}
	for _, list := range []string{"ingress", "ingressDeny", "egress", "egressDeny"} {
		if d.often(40) {
			spec[list] = []any{d.ciliumRule(list[0] == 'i')}
		}
	}
	if d.often(20) {
		spec["enableDefaultDeny"] = map[string]any{d.one("ingress", "egress"): d.often(50)}
	}
	if d.often(50) {
		return object("cilium.io/v2", "CiliumNetworkPolicy", d.one("n0", "n1", "n2"), fmt.Sprintf("l%d", i), spec)
	}
	return object("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "", fmt.Sprintf("w%d", i), spec)
}

func (d dice) ciliumSelector(peer bool) map[string]any {
	match := map[string]any{}
	if d.often(60) {
		match[d.one("app", "tier")] = d.one("a", "b", "c")
	}
	if peer && d.often(20) {
		match["io.kubernetes.pod.namespace"] = d.one("n0", "n1")
	} else if peer && d.often(20) {
		match["io.cilium.k8s.namespace.labels.app"] = d.one("a", "b")
	} else if peer && d.often(25) {
		except := map[string]any{"key": d.one("k8s:io.kubernetes.pod.namespace", "io.kubernetes.pod.namespace",
			"io.cilium.k8s.namespace.labels.app"), "operator": "NotIn", "values": []any{"n1", "a"}}
		return map[string]any{"matchLabels": match, "matchExpressions": []any{except}}
	}
	return map[string]any{"matchLabels": match}
}

func (d dice) ciliumRule(ingress bool) map[string]any {
	prefix := "to"
	if ingress {
		prefix = "from"
	}
	rule := map[string]any{}
	switch d.IntN(5) {
	case 0, 1:
		rule[prefix+"Endpoints"] = []any{d.ciliumSelector(true), d.ciliumSelector(true)}[:d.IntN(3)]
	case 2:
		rule[prefix+"Entities"] = []any{d.one("all", "cluster", "remote-node", "world", "host")}
	case 3:
		rule[prefix+"CIDR"] = []any{"10.0.0.0/8"}
	}
	if d.often(50) {
		port := map[string]any{"port": d.one("80", "81", "web"), "protocol": d.one("TCP", "UDP")}
		if port["port"] == "80" && d.often(30) {
			port["endPort"] = 82
		}
		rule["toPorts"] = []any{map[string]any{"ports": []any{port}}}
	}
	return rule
}

func interesting() []Port {
	return []Port{{"TCP", 80}, {"TCP", 81}, {"TCP", 82}, {"UDP", 80}, {"UDP", 81}, {"SCTP", 81}, {"TCP", 9}}
}

func randomProfiles() []Profile {
	return []Profile{{CNI: "flannel", Dialect: None}, {CNI: "kube-router", Dialect: Kubernetes},
		{CNI: "calico", Dialect: Calico}, {CNI: "cilium", Dialect: Cilium}, {CNI: "kindnet", Dialect: Kubernetes}}
}

// TestRandom holds verdicts, differences and probes to the oracle, on random clusters and pairs of profiles.
func TestRandom(t *testing.T) {
	rounds := uint64(300)
	if testing.Short() {
		rounds = 100
	}
	differences, probes := 0, 0
	for seed := range rounds {
		d := dice{rand.New(rand.NewPCG(seed, 1))}
		snapshot := d.cluster()
		profiles := randomProfiles()
		before, after := profiles[d.IntN(5)], profiles[d.IntN(5)]
		snapshot.Other = slices.DeleteFunc(snapshot.Other, func(o unstructured.Unstructured) bool {
			kind := cluster.PolicyKind{Group: o.GroupVersionKind().Group}
			return !before.evaluates(kind) && !after.evaluates(kind) // a gap, which TestUnevaluated is about
		})
		model := Build(snapshot, before, after)
		if gaps := model.Gaps(); len(gaps) > 0 {
			t.Fatalf("seed %d: %v", seed, gaps)
		}
		w := world{t, seed, snapshot, model,
			[2]oracle{{snapshot: snapshot, profile: before}, {snapshot: snapshot, profile: after}}}
		w.verdicts()
		w.differences()
		differences += len(model.Differences())
		probes += len(model.Probes())
		if t.Failed() {
			t.Fatalf("seed %d: %s to %s", seed, before.CNI, after.CNI)
		}
	}
	t.Logf("%d differences, %d probes", differences, probes)
	if differences == 0 || probes == 0 || probes > differences {
		t.Errorf("%d differences, %d probes", differences, probes)
	}
}

type world struct {
	*testing.T
	seed     uint64
	snapshot *cluster.Snapshot
	model    *Model
	oracles  [2]oracle
}

func (w world) pairs(f func(from, to *corev1.Pod, port Port)) {
	for i := range w.snapshot.Pods {
		for j := range w.snapshot.Pods {
			for _, port := range interesting() {
				f(&w.snapshot.Pods[i], &w.snapshot.Pods[j], port)
			}
		}
	}
}

func name(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func (w world) verdicts() {
	w.pairs(func(from, to *corev1.Pod, port Port) {
		for side, o := range w.oracles {
			want := Deny
			if o.allows(from, to, port) {
				want = Allow
			}
			if got, err := w.model.Verdict(Side(side), name(from), name(to), port); err != nil || got != want {
				w.Errorf("%s: %s to %s, %s: %s, want %s (%v)",
					o.profile.CNI, name(from), name(to), port, got, want, err)
			}
		}
	})
}

func (w world) differences() {
	found := w.model.Differences()
	w.pairs(func(from, to *corev1.Pod, port Port) {
		before, after := w.oracles[0].allows(from, to, port), w.oracles[1].allows(from, to, port)
		if before == after {
			return
		}
		change := Closes
		if after {
			change = Opens
		}
		if !slices.ContainsFunc(found, func(d Difference) bool { return d.Change == change && d.Ports.Has(port) }) {
			w.Errorf("%s to %s, %s %s: no difference says so", name(from), name(to), port, change)
		}
	})
	for _, d := range found {
		w.witness(d.Witness)
	}
	shown := make([]bool, len(found))
	for _, p := range w.model.Probes() {
		w.witness(p.Witness)
		for _, i := range p.Shows {
			shown[i] = true
		}
	}
	if i := slices.Index(shown, false); i >= 0 {
		w.Errorf("no probe shows %v", found[i])
	}
}

func (w world) witness(x Witness) {
	for side, want := range []Verdict{x.Before, x.After} {
		if got := w.oracles[side].allows(x.From, x.To, x.Port); got != (want == Allow) {
			w.Errorf("witness %s to %s, %s: %s, the oracle says %v", name(x.From), name(x.To), x.Port, want, got)
		}
	}
	if x.Before == x.After {
		w.Errorf("a witness of no difference: %s to %s, %s", name(x.From), name(x.To), x.Port)
	}
}

// TestRandomAddresses holds that a verdict under addresses that are not given out yet is true of all of them.
func TestRandomAddresses(t *testing.T) {
	depends := 0
	for seed := range uint64(150) {
		d := dice{rand.New(rand.NewPCG(seed, 2))}
		snapshot := d.cluster()
		profile := randomProfiles()[1+d.IntN(2)]
		profile.Pods = []netip.Prefix{netip.MustParsePrefix(d.one("10.9.0.0/24", "10.0.0.0/15", "10.0.2.0/24"))}
		model := Build(snapshot, profile, profile)
		o := oracle{snapshot: snapshot, profile: profile, addressOf: map[string]netip.Addr{}}
		for range 3 {
			for i := range snapshot.Pods {
				pod := &snapshot.Pods[i]
				if !pod.Spec.HostNetwork && !profile.Pods[0].Contains(netip.MustParseAddr(pod.Status.PodIP)) {
					bytes := profile.Pods[0].Addr().As4()
					bytes[3] = byte(d.IntN(256))
					o.addressOf[name(pod)] = netip.AddrFrom4(bytes)
				}
			}
			world{T: t, snapshot: snapshot}.pairs(func(from, to *corev1.Pod, port Port) {
				got, err := model.Verdict(Before, name(from), name(to), port)
				if got == Depends {
					depends++
				} else if allowed := o.allows(from, to, port); err != nil || allowed != (got == Allow) {
					t.Fatalf("seed %d: %s to %s, %s: %s, the oracle says %v (%v)",
						seed, name(from), name(to), port, got, allowed, err)
				}
			})
		}
	}
	if depends == 0 {
		t.Error("no verdict depends")
	}
}
