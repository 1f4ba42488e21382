package replace

import (
	"fmt"

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
	for i := range target.Objects {
		if name := target.Objects[i].GetNamespace(); !known[name] {
			return kind.Refuse(fmt.Sprintf("kubectl create namespace %s && kubectl label namespace "+
				"%s pod-security.kubernetes.io/enforce=privileged, or add it to the manifest",
				shell.Word(name), shell.Word(name)),
				"%s is in namespace %s, which neither the cluster nor the manifest has",
				joint.Name(step.RefOf(&target.Objects[i])), name)
		}
	}
	return nil
}

// dispensable refuses a network with which something would go that users wrote.
func dispensable(source *cni.Installation) error {
	if len(source.Written) == 0 {
		return nil
	}
	var names []string
	for _, ref := range source.Written {
		names = append(names, joint.Name(ref))
	}
	return kind.Refuse("save them to a file (kubectl get KIND NAME -o yaml), rewrite those that you need for the new "+
		"network, and delete them",
		"users wrote %s that would be deleted with %s: "+
			"%s", cluster.Count(len(names), "object"), source.CNI, kind.Some(names))
}
