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

// HostNetwork says which workloads stay on their nodes' network.
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
		return nil // they stay, and talk to pods of that network as they do today
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
			Message: "its pods use their nodes' network: they are not created again and keep their addresses, and what they exchange with pods " +
				"crosses from the node to either network while both are there",
			Fix: "nothing, if that is meant; the paths from nodes to pods are measured",
		}
		if n := policies[w.Meta.Namespace]; n > 0 {
			f.Severity = finding.Warn
			f.Message += fmt.Sprintf(". No NetworkPolicy of its namespace (%d there) holds for it on any network, and to those that select by pod it is "+
				"a node: whether it is let in depends on the network", n)
			f.Evidence = map[string]any{"policies": n}
			f.Fix = "allow the nodes' addresses where it is to be let in (ipBlock), and try it on one node of the target"
		}
		found = append(found, f)
	}
	return found
}
