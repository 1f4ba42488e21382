package replace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// housed refuses a target with objects in a namespace that neither the cluster nor its manifest has, as charts leave it
// to helm. A snapshot without any namespace does not tell.
func housed(snapshot *cluster.Snapshot, target *cni.Target) error {
	known := map[string]bool{"": true}
	for i := range snapshot.Namespaces {
		known[snapshot.Namespaces[i].Name] = true
	}
	if len(snapshot.Namespaces) == 0 {
		return nil
	}
	for i := range target.Objects {
		if target.Objects[i].GetKind() == "Namespace" {
			known[target.Objects[i].GetName()] = true
		}
	}
	for i, object := range slices.Concat(target.Objects, target.Policies) {
		name := object.GetNamespace()
		if known[name] {
			continue
		}
		hint := fmt.Sprintf("kubectl create namespace %s && kubectl label namespace "+
			"%s pod-security.kubernetes.io/enforce=privileged, or add it to the manifest",
			shell.Word(name), shell.Word(name))
		if i >= len(target.Objects) { // no pod of the network runs there
			hint = "leave the policy out of the manifest, or create the namespace: kubectl create namespace " +
				shell.Word(name)
		}
		return kind.Refuse(hint, "%s is in namespace %s, which neither the cluster nor the manifest has",
			joint.Name(step.RefOf(&object)), name)
	}
	return nil
}

// encrypted refuses a network that encrypts: neither the way between two networks nor any target that was run does.
func encrypted(source *cni.Installation, target *cni.Target) error {
	if !source.Capabilities.Encrypts {
		return nil
	}
	return kind.Refuse("if traffic between nodes may go unencrypted, turn encryption off first (wireguardEnabled: "+
		"false in the FelixConfiguration), then plan again from a new snapshot; if not, "+cni.Elsewhere,
		"%s encrypts traffic between nodes (WireGuard), and a change to %s would end that", source.Title(),
		target.Installation.Title())
}

// dispensable refuses a network with which something would go that users wrote. Policies may go if the target's
// manifest has its own: a check finds which connections get another verdict then (policy/verdict-changes). So may
// the network sets that policies select: the target's policies have their ranges.
func dispensable(source *cni.Installation, target *cni.Target) error {
	var names []string
	policies, selecting := 0, slices.ContainsFunc(source.Written, isPolicy)
	for _, ref := range source.Written {
		if isPolicy(ref) || isNetworkSet(ref) && (selecting || len(target.Policies) > 0) {
			if len(target.Policies) > 0 {
				continue
			}
			policies++
		}
		names = append(names, joint.Name(ref))
	}
	if len(names) == 0 {
		return nil
	}
	hint := "save them to a file (kubectl get KIND NAME -o yaml), rewrite those that you need for the new network, " +
		"and delete them"
	switch {
	case policies > 0 && target.Translation != "":
		rest := ""
		if policies < len(names) {
			rest = "; save the other objects to a file, and delete those only"
		}
		hint = "write the policies as policies of the new network, and append those to the manifest: " +
			target.Translation + rest
	case policies > 0:
		hint += ", network sets only after the policies that select them"
	}
	return kind.Refuse(hint, "users wrote %s that would be deleted with %s: %s",
		cluster.Count(len(names), "object"), source.CNI, kind.Some(names))
}

// isNetworkSet reports whether an object is a list of address ranges that Calico's policies select.
func isNetworkSet(ref step.Ref) bool {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return cluster.IsCalico(group) && (ref.Kind == "GlobalNetworkSet" || ref.Kind == "NetworkSet")
}

// isPolicy reports whether an object is of a kind of policies.
func isPolicy(ref step.Ref) bool {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return slices.ContainsFunc(cluster.PolicyKinds(),
		func(k cluster.PolicyKind) bool { return k.Is(group, ref.Kind) })
}
