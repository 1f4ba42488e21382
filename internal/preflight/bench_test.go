package preflight

import (
	"fmt"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// BenchmarkReflectors asks what an upgrade to Kubernetes 1.24 does to a cluster whose three route reflectors
// are picked by the label that it removes: the what-if itself, and every check of BGP, labels and taints.
func BenchmarkReflectors(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		snapshot := clustertest.Reflectors(nodes)
		change := v1alpha1.ChangeSpec{KubernetesTo: "v1.24.0"}
		run := func(only ...string) int {
			after, err := whatif.Apply(snapshot, change)
			if err != nil {
				b.Fatal(err)
			}
			result := Run(All(), &check.Pass{Snapshot: snapshot, Change: change, WhatIf: after}, Options{Only: only})
			return result.Summary.Block
		}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				if blocks := run("bgp", "labels", "taints"); blocks != 3 {
					b.Fatalf("%d findings block, not the two BGPPeers and the partition", blocks)
				}
			}
		})
		for _, c := range All() {
			if topic, _, _ := strings.Cut(c.ID, "/"); topic == "bgp" || topic == "labels" || topic == "taints" {
				b.Run(fmt.Sprintf("nodes=%d/%s", nodes, c.ID), func(b *testing.B) {
					for b.Loop() {
						run(c.ID)
					}
				})
			}
		}
	}
}

// BenchmarkAll runs the whole catalogue on clusters of 20 pods a node: 5,000 nodes are 100,000 pods,
// 5,000 policies, 5,000 budgets.
func BenchmarkAll(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		pass := &check.Pass{
			Snapshot: clustertest.Cluster(nodes),
			Change:   v1alpha1.ChangeSpec{To: "calico", AgentImage: "agent:v1"},
			Source: &cni.Installation{CNI: "flannel", PodCIDRs: []string{"10.128.0.0/9"},
				Capabilities: cni.Capabilities{
					CIDRSource: "node", Encapsulation: "vxlan", VNI: 1, Port: 8472, Overhead: 50,
					HostLinks: []string{"flannel.1", "cni0"}, ConfName: "10-flannel.conflist",
					Policy: cni.PolicyKubernetes}},
			Target: &cni.Installation{CNI: "calico", PodCIDRs: []string{"100.64.0.0/10"},
				Capabilities: cni.Capabilities{
					CIDRSource: "pool", Encapsulation: "vxlan", VNI: 4096, Port: 4789, Overhead: 50,
					HostLinks: []string{"vxlan.calico", "cali*"}, ConfName: "10-calico.conflist",
					Policy: cni.PolicyCalico}},
		}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				if result := Run(All(), pass, Options{}); result.Blocks() {
					b.Fatalf("the generated cluster is to be fine, not: %+v", result.Findings[0])
				}
			}
		})
		for _, c := range All() {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, c.ID), func(b *testing.B) {
				for b.Loop() {
					Run([]check.Check{c}, pass, Options{})
				}
			})
		}
	}
}
