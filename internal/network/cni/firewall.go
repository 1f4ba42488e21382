package cni

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Firewall is a kube-router that enforces NetworkPolicy beside a network that enforces none, and neither routes nor
// proxies; nil where there is none.
func Firewall(snapshot *cluster.Snapshot) *appsv1.DaemonSet {
	for i := range snapshot.DaemonSets {
		set := &snapshot.DaemonSets[i]
		containers := set.Spec.Template.Spec.Containers
		if ImageOf(containers, "kube-router") == "" {
			continue
		}
		for _, container := range containers {
			args := append(slices.Clone(container.Command), container.Args...)
			if flag(args, "run-firewall") && !flag(args, "run-router") && !flag(args, "run-service-proxy") {
				return set
			}
		}
	}
	return nil
}

// flag reads a boolean flag of kube-router, all of which are true unless they are set.
func flag(args []string, name string) bool {
	for _, arg := range args {
		word := strings.TrimLeft(arg, "-")
		if word == name+"=false" {
			return false
		}
	}
	return true
}

// BesideFirewall notes on a network what enforces policy for it, where something does.
func BesideFirewall(snapshot *cluster.Snapshot, router *appsv1.DaemonSet, found *Installation) {
	if router == nil {
		return
	}
	ref := DaemonSetRef(router)
	found.PolicyAgent = &ref
	found.Capabilities.Policy = PolicyKubernetes
	found.Problems = append(found.Problems, NotReady(snapshot, router)...)
}

// FirewallParts are the objects of a Firewall: what runs, and the rights that it has; none of nil.
func FirewallParts(router *appsv1.DaemonSet) (runs, rights []step.Ref) {
	if router == nil {
		return nil, nil
	}
	return []step.Ref{DaemonSetRef(router)}, Rights(router, "kube-router")
}

// FirewallResidue adds what the Firewall of a network leaves on nodes.
func FirewallResidue(found *Installation, residue *step.Residue) {
	if found.PolicyAgent == nil {
		return
	}
	residue.Chains = append(residue.Chains, "KUBE-ROUTER-*", "KUBE-POD-FW-*", "KUBE-NWPLCY-*")
	residue.IPSets = append(residue.IPSets, "KUBE-SRC-*", "KUBE-DST-*", "kube-router-*", "inet6:KUBE-SRC-*", "inet6:KUBE-DST-*")
}
