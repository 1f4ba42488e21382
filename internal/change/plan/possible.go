package plan

import (
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Possible refuses a change that cannot be made on this cluster at all, whatever its owner accepts or mends: to a network that is
// not known or never comes, from one that is not understood, on nodes that run no Linux, by a manifest of something else. It is asked
// before any check is run, so that what decides is said first, and alone. A manifest may be missing: that can be mended.
func Possible(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry, manifest []unstructured.Unstructured) error {
	driver, known := drivers.Get(change.To)
	switch {
	case !changes(change):
		return nil
	case change.To != "" && !known:
		return Unknown(change.To, drivers)
	}
	if err := linux(snapshot); err != nil {
		return err
	}
	found := drivers.Detect(snapshot)
	if len(found) > 1 {
		return nil // the checks say what each of them is, and which one goes
	}
	if len(found) == 0 {
		if seen, _ := snapshot.Has("daemonsets"); !seen || len(snapshot.Nodes) == 0 {
			return nil // nobody looked
		}
		return unknown(snapshot, drivers)
	}
	source := found[0]
	switch {
	case source.Untried != "" && !RollsOut(change):
		return refuse(cni.Elsewhere, "%s", source.Untried)
	case len(source.Problems) > 0: // the checks say what is wrong
		return nil
	case RollsOut(change):
		return flagsOn(source)
	case change.Pool != "" || change.Encapsulation != "" || change.Reflectors != "" || change.To == "":
		return nil
	case Upgrades(snapshot, change, drivers):
		_, err := Another(snapshot, source, change, drivers, manifest)
		if refused, ok := errors.AsType[*Refusal](err); ok && refused.OfManifest && len(manifest) > 0 {
			return refused
		}
		return nil // what stands against it may be the state of the cluster, which the checks explain
	}
	if never := cni.NeverComes(driver); never != nil {
		return never
	}
	if len(manifest) == 0 {
		return nil
	}
	_, err := install(snapshot, driver, source, manifest)
	return err
}

// changes says whether a network, or a setting of one, is changed.
func changes(change v1alpha1.ChangeSpec) bool {
	return change.To != "" || RollsOut(change) || change.Pool != "" || change.Encapsulation != "" || change.Reflectors != ""
}

// linux refuses nodes of another operating system.
func linux(snapshot *cluster.Snapshot) error {
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if os := node.Labels["kubernetes.io/os"]; os != "" && os != "linux" {
			return refuse("Theseus changes clusters of Linux nodes alone; "+cni.Elsewhere, "node %s runs %s, not Linux", node.Name, os)
		}
	}
	return nil
}
