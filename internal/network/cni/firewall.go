package cni

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// RouterBridge is the bridge of a kube-router that is the pods' network. Its name is fixed.
const RouterBridge = "kube-bridge"

// Firewall finds a kube-router that only enforces NetworkPolicy, next to a network that enforces none, without routing
// or proxying; nil if there is none.
func Firewall(snapshot *cluster.Snapshot) *appsv1.DaemonSet {
	set, _ := routers(snapshot, func(args []string) bool {
		return RouterFlag(args, "run-firewall") && !RouterFlag(args, "run-router") &&
			!RouterFlag(args, "run-service-proxy")
	})
	return set
}

// Router finds a kube-router that routes the pods' traffic, with the arguments of its container; nil if there is none.
func Router(snapshot *cluster.Snapshot) (set *appsv1.DaemonSet, container *corev1.Container) {
	return routers(snapshot, func(args []string) bool { return RouterFlag(args, "run-router") })
}

func routers(snapshot *cluster.Snapshot, is func(args []string) bool) (*appsv1.DaemonSet, *corev1.Container) {
	for i := range snapshot.DaemonSets {
		set := &snapshot.DaemonSets[i]
		containers := set.Spec.Template.Spec.Containers
		for j := range containers {
			if ImageOf(containers[j:j+1], "kube-router") != "" && is(RouterArgs(&containers[j])) {
				return set, &containers[j]
			}
		}
	}
	return nil, nil
}

// RouterArgs are all words of a container's command line.
func RouterArgs(container *corev1.Container) []string {
	return append(slices.Clone(container.Command), container.Args...)
}

// RouterFlag reads a boolean flag of kube-router whose default is true. Such a flag takes its value only after "=":
// "--name false" sets it to true.
func RouterFlag(args []string, name string) bool {
	on := true
	for _, arg := range args {
		switch value, set := strings.CutPrefix(arg, "--"+name+"="); {
		case set:
			on = !slices.Contains([]string{"false", "f", "F", "FALSE", "False", "0"}, value)
		case arg == "--"+name:
			on = true
		}
	}
	return on
}

// RouterValue reads a flag of kube-router that is a string.
func RouterValue(args []string, name string) (value string, set bool) {
	for i, arg := range args {
		word, found := strings.CutPrefix(arg, "--"+name)
		switch {
		case !found:
		case strings.HasPrefix(word, "="):
			value, set = word[1:], true
		case word == "" && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			value, set = args[i+1], true
		case word == "":
			value, set = "", true
		}
	}
	return value, set
}

// BesideFirewall records in a network the Firewall that enforces policy for it, if there is one.
func BesideFirewall(snapshot *cluster.Snapshot, router *appsv1.DaemonSet, found *Installation) {
	if router == nil {
		return
	}
	ref := DaemonSetRef(router)
	found.PolicyAgent = &ref
	found.Capabilities.Policy = PolicyKubernetes
	found.Capabilities.PolicyMarks = FirewallMarks
	found.Problems = append(found.Problems, NotReady(snapshot, router)...)
}

// FirewallMarks are the marks of kube-router: 0x10000 for packets that policy allows, 0x20000 for those that it rejects
// (pkg/controllers/netpol of v1.5.1).
const FirewallMarks = 0x30000

// FirewallParts returns the objects of a Firewall: the DaemonSet and its RBAC objects; none for nil.
func FirewallParts(router *appsv1.DaemonSet) (runs, rights []step.Ref) {
	if router == nil {
		return nil, nil
	}
	return []step.Ref{DaemonSetRef(router)}, Rights(router, "kube-router")
}

// FirewallResidue adds the residue of a network's Firewall on nodes.
func FirewallResidue(found *Installation, residue *step.Residue) {
	if found.PolicyAgent != nil {
		RouterResidue(residue)
	}
}

// RouterResidue adds the chains and sets of any kube-router.
func RouterResidue(residue *step.Residue) {
	residue.Chains = append(residue.Chains, "KUBE-ROUTER-*", "KUBE-POD-FW-*", "KUBE-NWPLCY-*")
	residue.IPSets = append(residue.IPSets, "KUBE-SRC-*", "KUBE-DST-*", "kube-router-*",
		"inet6:KUBE-SRC-*", "inet6:KUBE-DST-*")
}
