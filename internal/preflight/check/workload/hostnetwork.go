package workload

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed host_network.md
var hostNetworkDoc string

// HostNetwork reports workloads with hostNetwork pods, which stay as they are.
func HostNetwork() check.Check {
	return check.Check{
		ID:    "workload/host-network",
		Title: "hostNetwork workloads, which the change does not move",
		Doc:   hostNetworkDoc,
		Needs: []string{"deployments", "statefulsets", "daemonsets", "replicasets", "networkpolicies"},
		Run:   hostNetwork,
	}
}

func hostNetwork(pass *check.Pass) []finding.Finding {
	if pass.OneNetwork() {
		return nil // their traffic with pods stays the same
	}
	var found []finding.Finding
	policies := map[string]int{}
	for i := range pass.Snapshot.NetworkPolicies {
		policies[pass.Snapshot.NetworkPolicies[i].Namespace]++
	}
	for _, w := range pass.Workloads() {
		if !w.Pods.Spec.HostNetwork || cluster.IsSystemNamespace(w.Meta.Namespace) || w.Replicas == 0 {
			continue
		}
		f := finding.Finding{
			ID: "workload/host-network", Severity: finding.Info, Subject: w.Subject,
			Message: "its pods are hostNetwork pods: they are not recreated and keep their addresses, and their " +
				"traffic with pods crosses from the node to either network while both are live",
			Fix: "nothing, if this is intended; Theseus measures the paths from nodes to pods",
		}
		if n := policies[w.Meta.Namespace]; n > 0 {
			f.Severity = finding.Warn
			f.Message += fmt.Sprintf(". No network applies the NetworkPolicies of its namespace (%d) to it, and "+
				"policies that select by pod see it as a node: whether they allow it depends on the network", n)
			f.Evidence = map[string]any{"policies": n}
			f.Fix = "allow the nodes' addresses (ipBlock) where it needs access, and try it on one node of the target"
		}
		found = append(found, f)
	}
	return found
}
