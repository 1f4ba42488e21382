package policy

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
)

// BenchmarkDifferences compares profiles over 20 pods and one policy a node: 5,000 nodes are 100,000 pods and
// 5,000 policies, each about pods of its own.
func BenchmarkDifferences(b *testing.B) {
	old, other := netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("192.168.0.0/16")
	flannel := Profile{CNI: "flannel", Dialect: None, Pods: []netip.Prefix{old}, Tunnelled: true}
	router := Profile{CNI: "kube-router", Dialect: Kubernetes, Pods: []netip.Prefix{old}, Tunnelled: true}
	calico := Profile{CNI: "calico", Dialect: Calico, Pods: []netip.Prefix{other}, Tunnelled: true}
	cilium := Profile{CNI: "cilium", Dialect: Cilium, Pods: []netip.Prefix{other}}
	for _, nodes := range []int{500, 5000} {
		plain := clustertest.Cluster(nodes)
		byAddress := withBlocks(clustertest.Cluster(nodes))
		hidden := closed(withBlocks(clustertest.Cluster(nodes)))
		global := withGlobals(clustertest.Cluster(nodes))
		for _, c := range []struct {
			name          string
			snapshot      *cluster.Snapshot
			before, after Profile
			differences   int
		}{
			{"enforced-to-enforced", plain, router, calico, 0},
			{"none-to-calico", plain, flannel, calico, nodes},
			{"calico-to-cilium-by-address", byAddress, calico, cilium, nodes},
			{"calico-to-cilium-all-hidden", hidden, calico, cilium, 0},
			{"calico-to-none-with-global", global, calico, flannel, nodes + nodes/10 - 2},
		} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, c.name), func(b *testing.B) {
				b.ReportAllocs()
				start := cpu(b)
				for b.Loop() {
					m := Build(c.snapshot, c.before, c.after)
					if found := len(m.Differences()); found != c.differences {
						b.Fatalf("%d differences", found)
					}
					m.Probes()
				}
				b.ReportMetric(float64((cpu(b)-start).Milliseconds())/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// cpu is the processor time of this process, all threads: on a busy machine it says more than the clock.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// withBlocks lets every policy take a range of addresses too, half of them ranges of pods.
func withBlocks(s *cluster.Snapshot) *cluster.Snapshot {
	for i := range s.NetworkPolicies {
		block := networkingv1.IPBlock{CIDR: "0.0.0.0/0",
			Except: []string{fmt.Sprintf("10.%d.%d.0/24", 128+i>>8&127, i&255)}}
		rule := &s.NetworkPolicies[i].Spec.Ingress[0]
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &block})
	}
	return s
}

// closed adds to every namespace a policy that lets nothing out: no difference of what is let in shows.
func closed(s *cluster.Snapshot) *cluster.Snapshot {
	seen := map[string]bool{}
	for i := range s.Pods {
		namespace := s.Pods[i].Namespace
		if seen[namespace] {
			continue
		}
		seen[namespace] = true
		// A rule that nobody matches, so that no policy is seen to be shut at a glance.
		s.NetworkPolicies = append(s.NetworkPolicies, networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "closed"},
			Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
				Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{
					PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}}}}}}},
		})
	}
	return s
}

// withGlobals adds a tenth as many policies of Calico's that are about pods by label, wherever they are.
func withGlobals(s *cluster.Snapshot) *cluster.Snapshot {
	for i := range len(s.Nodes) / 10 {
		s.Other = append(s.Other,
			object("projectcalico.org/v3", "GlobalNetworkPolicy", "", fmt.Sprint(i), map[string]any{
				"order": i, "selector": fmt.Sprintf("app in {'app-%d', 'app-%d'}", i, 2*i), "types": []any{"Ingress"},
				"ingress": []any{map[string]any{"action": "Pass",
					"source": map[string]any{"selector": "has(app) && app != 'app-1'"}}}}))
	}
	return s
}
