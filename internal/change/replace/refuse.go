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
	for _, object := range slices.Concat(target.Objects, target.Policies) {
		if name := object.GetNamespace(); !known[name] {
			return kind.Refuse(fmt.Sprintf("kubectl create namespace %s && kubectl label namespace "+
				"%s pod-security.kubernetes.io/enforce=privileged, or add it to the manifest",
				shell.Word(name), shell.Word(name)),
				"%s is in namespace %s, which neither the cluster nor the manifest has",
				joint.Name(step.RefOf(&object)), name)
		}
	}
	return nil
}

// dispensable refuses a network with which something would go that users wrote. Policies may go if the target's
// manifest has its own: a check finds which connections get another verdict then (policy/verdict-changes).
func dispensable(source *cni.Installation, target *cni.Target) error {
	var names []string
	policies := 0
	for _, ref := range source.Written {
		if isPolicy(ref) {
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
	if policies == len(names) && target.Translation != "" {
		hint = "write them as policies of the new network, and append those to the manifest: " + target.Translation
	}
	return kind.Refuse(hint, "users wrote %s that would be deleted with %s: %s",
		cluster.Count(len(names), "object"), source.CNI, kind.Some(names))
}

// isPolicy reports whether an object is of a kind of policies.
func isPolicy(ref step.Ref) bool {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return slices.ContainsFunc(cluster.PolicyKinds(),
		func(k cluster.PolicyKind) bool { return k.Is(group, ref.Kind) })
}
