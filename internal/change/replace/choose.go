package replace

import (
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/adopt"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/recreate"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
)

// chosen is a change with its strategy where that follows from the cluster: pods are adopted where they can be, and
// nothing speaks against it, when no range for new addresses is given; and where a range is given with the strategy
// adopt, it is for pods that cannot be, which are created again. Any other change is as it was; the error, that of
// Make, says why nothing follows.
func chosen(r *kind.Request) (v1alpha1.ChangeSpec, error) {
	change, _, err := choose(r.Snapshot, r.Change, r.Drivers, r.Manifest)
	return change, err
}

// choose says also why pods are not adopted that were to be, empty where they are.
func choose(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry,
	manifest []unstructured.Unstructured) (v1alpha1.ChangeSpec, string, error) {
	open := change.Strategy == "" && change.PodCIDR == ""
	both := change.Strategy == adopt.Name && change.PodCIDR != ""
	driver, known := drivers.Get(change.To)
	if !open && !both || !known || len(manifest) == 0 {
		return change, "", nil
	}
	source, err := kind.InPlace(snapshot, drivers)
	if err != nil {
		return change, "", err
	}
	asked := change
	asked.Strategy, asked.PodCIDR = adopt.Name, ""
	if open {
		if _, err := install(snapshot, driver, source, manifest); err != nil {
			return change, "", err // with a range of its own it could not come either
		}
	}
	_, _, err = bring(snapshot, asked, driver, source, nil, manifest)
	var refused *kind.Refusal
	reserve := source.Capabilities.OnRequest
	switch {
	case err == nil && open && reserve != "":
		return change, "", kind.Refuse("set --strategy adopt to request it; or "+
			joint.RecreateHint(snapshot, *source, cni.Installation{}),
			"no range for the pods of %s is given, and Theseus adopts running pods of %s only on request: %s",
			change.To, source.CNI, reserve)
	case err == nil:
		return asked, "", nil
	case !errors.As(err, &refused):
		return change, "", err
	case open:
		hint := refused.Hint
		if !refused.Recreate { // something else stands against it
			hint += "; or " + joint.RecreateHint(snapshot, *source, cni.Installation{})
		}
		return change, "", kind.Refuse(hint, "no range for the pods of %s is given, and they cannot be adopted: %s",
			change.To, refused.Message)
	}
	change.Strategy = recreate.Name
	return change, refused.Message, nil
}

// adoptable refuses a pair of networks of which pods cannot be adopted, or says what is known of the one to come. First
// comes what no other source would change.
func adoptable(snapshot *cluster.Snapshot, driver cni.Driver, source *cni.Installation,
	manifest []unstructured.Unstructured) (cni.Capabilities, error) {
	target, err := install(snapshot, driver, source, manifest)
	if err != nil {
		return cni.Capabilities{}, err
	}
	comes := target.Installation.Capabilities
	clashes := adopt.Clashes(snapshot, *source, target.Installation)
	switch {
	case len(clashes) == 0:
		return comes, nil
	case !comes.CanRequestAddress:
		return comes, unadoptable(joint.RecreateHint(snapshot, *source, target.Installation),
			driver.Name()+" cannot give a pod the address that the pod requests, so it cannot take over running pods")
	}
	return comes, unadoptable(clashes[0].Hint, clashes[0].Message)
}

// install asks a driver how its network would come, with a range that nothing stands against.
func install(snapshot *cluster.Snapshot, driver cni.Driver, source *cni.Installation,
	manifest []unstructured.Unstructured) (*cni.Target, error) {
	return driver.Install(cni.Request{Manifest: manifest, PodCIDR: "192.0.2.0/24", Source: source,
		NodeLabel: v1alpha1.LabelTarget, Defined: snapshot.Definitions()})
}
