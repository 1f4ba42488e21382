package cni

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Firewall finds a kube-router that only enforces NetworkPolicy, next to a network that enforces none, without routing
// or proxying; nil if there is none.
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

// flag reads a boolean flag of kube-router; the default of all these flags is true.
func flag(args []string, name string) bool {
	for _, arg := range args {
		word := strings.TrimLeft(arg, "-")
		if word == name+"=false" {
			return false
		}
	}
	return true
}

// BesideFirewall records in a network the Firewall that enforces policy for it, if there is one.
func BesideFirewall(snapshot *cluster.Snapshot, router *appsv1.DaemonSet, found *Installation) {
	if router == nil {
		return
	}
	ref := DaemonSetRef(router)
	found.PolicyAgent = &ref
	found.Capabilities.Policy = PolicyKubernetes
	found.Capabilities.PolicyMarks = firewallMarks
	found.Problems = append(found.Problems, NotReady(snapshot, router)...)
}

// firewallMarks are the marks of kube-router: 0x10000 for packets that policy allows, 0x20000 for those that it rejects
// (pkg/controllers/netpol of v1.5.1).
const firewallMarks = 0x30000

// FirewallParts returns the objects of a Firewall: the DaemonSet and its RBAC objects; none for nil.
func FirewallParts(router *appsv1.DaemonSet) (runs, rights []step.Ref) {
	if router == nil {
		return nil, nil
	}
	return []step.Ref{DaemonSetRef(router)}, Rights(router, "kube-router")
}

// FirewallResidue adds the residue of a network's Firewall on nodes.
func FirewallResidue(found *Installation, residue *step.Residue) {
	if found.PolicyAgent == nil {
		return
	}
	residue.Chains = append(residue.Chains, "KUBE-ROUTER-*", "KUBE-POD-FW-*", "KUBE-NWPLCY-*")
	residue.IPSets = append(residue.IPSets, "KUBE-SRC-*", "KUBE-DST-*", "kube-router-*",
		"inet6:KUBE-SRC-*", "inet6:KUBE-DST-*")
}
