package policy

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

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
		for _, c := range []struct {
			name          string
			snapshot      *cluster.Snapshot
			before, after Profile
			differences   int
		}{
			{"enforced-to-enforced", plain, router, calico, 0},
			{"none-to-calico", plain, flannel, calico, nodes},
			{"calico-to-cilium-by-address", byAddress, calico, cilium, nodes},
		} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					m := Build(c.snapshot, c.before, c.after)
					if found := len(m.Differences()); found != c.differences {
						b.Fatalf("%d differences", found)
					}
					m.Probes()
				}
			})
		}
	}
}

// withBlocks lets every policy take a range of addresses too, half of them ranges of pods.
func withBlocks(s *cluster.Snapshot) *cluster.Snapshot {
	for i := range s.NetworkPolicies {
		block := networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{fmt.Sprintf("10.%d.%d.0/24", 128+i>>8&127, i&255)}}
		rule := &s.NetworkPolicies[i].Spec.Ingress[0]
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &block})
	}
	return s
}
