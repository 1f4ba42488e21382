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
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// calicoCluster is a cluster whose policies are Calico's and Kubernetes', with address ranges in Calico's.
func (d dice) calicoCluster() *cluster.Snapshot {
	s := d.cluster()
	s.Other = slices.DeleteFunc(s.Other, func(o unstructured.Unstructured) bool {
		return o.GroupVersionKind().Group == ciliumGroup
	})
	for i, address := range []string{"192.168.0.1", "192.168.0.2"} {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: []string{"node-a", "node-b"}[i]}}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		s.Nodes = append(s.Nodes, node)
	}
	// A block never matches pods under Cilium: the judge's matter, not the translator's.
	block := func(p networkingv1.NetworkPolicyPeer) bool { return p.IPBlock != nil }
	s.NetworkPolicies = slices.DeleteFunc(s.NetworkPolicies, func(np networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(np.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return slices.ContainsFunc(r.From, block)
		}) || slices.ContainsFunc(np.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
			return slices.ContainsFunc(r.To, block)
		})
	})
	for i := range s.Other {
		spec, _ := s.Other[i].Object["spec"].(map[string]any)
		for _, list := range []string{"ingress", "egress"} {
			rules, _ := spec[list].([]any)
			for _, rule := range rules {
				d.withNets(rule.(map[string]any), list)
			}
			if len(rules) > 0 && d.often(25) {
				spec[list] = append(rules, map[string]any{"action": d.one("Pass", "Deny", "Allow")})
			}
		}
	}
	if d.often(30) {
		s.Other = append(s.Other, object("projectcalico.org/v3", "GlobalNetworkSet", "", "set",
			map[string]any{"nets": []any{d.one("172.16.0.0/12", "10.9.0.0/16")}}))
		s.Other[len(s.Other)-1].SetLabels(map[string]string{"app": "a"})
	}
	return s
}

func (d dice) withNets(rule map[string]any, list string) {
	peer := rule[map[string]string{"ingress": "source", "egress": "destination"}[list]].(map[string]any)
	if d.often(25) {
		peer["nets"] = []any{d.one("0.0.0.0/0", "172.16.0.0/12", "172.16.3.0/24", "10.0.0.0/8", "192.168.0.0/16",
			"172.16.4.0/31")}
	}
	if d.often(15) {
		peer["notNets"] = []any{d.one("172.16.3.0/24", "10.0.0.0/8", "172.20.0.0/16")}
	}
	if d.often(10) {
		rule["ipVersion"] = 4
	}
}

// apart are connections between pods and what has no labels, nodes and addresses outside of the cluster, about which
// two oracles differ. A model that shared an error with the translation would not find them.
func apart(s *cluster.Snapshot, before, after oracle) (found []string) {
	var others []*corev1.Pod
	for _, text := range []string{"172.16.3.1", "172.20.0.1", "10.9.0.1", "192.168.7.7", "192.0.2.1", "2001:db8::1"} {
		others = append(others, stranger(text))
	}
	for i := range s.Pods {
		if s.Pods[i].Spec.HostNetwork {
			others = append(others, &s.Pods[i])
		}
	}
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Spec.HostNetwork {
			continue
		}
		for _, other := range others {
			for _, port := range []Port{{"TCP", 80}, {"TCP", 9}, {"UDP", 81}} {
				for _, pair := range [][2]*corev1.Pod{{pod, other}, {other, pod}} {
					was, is := before.allows(pair[0], pair[1], port), after.allows(pair[0], pair[1], port)
					if was != is && len(found) < 5 {
						found = append(found, fmt.Sprintf("oracle: %s to %s %s: %v, then %v", name(pair[0]),
							name(pair[1]), port, was, is))
					}
				}
			}
		}
	}
	return found
}

// TestTranslateRandom holds that a translation without remarks of parts that have no equal keeps every verdict: between
// any two pods, and between pods and addresses outside.
func TestTranslateRandom(t *testing.T) {
	rounds := uint64(1500)
	if testing.Short() {
		rounds = 300
	}
	claimed, denied, objects := 0, 0, 0
	before := Profile{CNI: "calico", Dialect: Calico, Pods: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}
	after := Profile{CNI: "cilium", Dialect: Cilium, Pods: before.Pods}
	for seed := range rounds {
		d := dice{rand.New(rand.NewPCG(seed, 3))}
		snapshot := d.calicoCluster()
		translated := Translate(snapshot, before)
		if len(translated.Untranslated) > 0 {
			continue
		}
		claimed++
		objects += len(translated.Objects)
		snapshot.Other = append(snapshot.Other, translated.Objects...)
		model := Build(snapshot, before, after)
		var wrong []string
		world{T: t, snapshot: snapshot}.pairs(func(from, to *corev1.Pod, port Port) {
			was, _ := model.Verdict(Before, name(from), name(to), port)
			is, _ := model.Verdict(After, name(from), name(to), port)
			if was != is && len(wrong) < 5 {
				wrong = append(wrong, name(from)+" to "+name(to)+" "+port.String()+": "+string(was)+", then "+
					""+string(is))
			}
			if was == Deny {
				denied++
			}
		})
		if seed%3 == 0 { // it takes long
			wrong = append(wrong, apart(snapshot, oracle{snapshot: snapshot, profile: before},
				oracle{snapshot: snapshot, profile: after})...)
		}
		for _, o := range model.OutsideDifferences() {
			wrong = append(wrong, name(o.Pod)+" "+o.Direction.String()+" "+o.First.String()+" "+o.Ports.String()+
				": "+string(o.Before)+", then "+string(o.After))
		}
		if len(wrong) > 0 {
			text, _ := yaml.Marshal(map[string]any{"np": snapshot.NetworkPolicies, "other": snapshot.Other})
			t.Fatalf("seed %d: %q, gaps %v\n%s", seed, wrong, model.Gaps(), text)
		}
	}
	t.Logf("%d of %d translated in full, %d objects, %d connections denied", claimed, rounds, objects, denied)
	if claimed < int(rounds)/4 || denied == 0 || objects == 0 {
		t.Errorf("%d of %d translated in full, %d objects, %d denied: the test shows "+
			"little", claimed, rounds, objects, denied)
	}
}
