package plan

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Possible refuses a change that cannot be made on this cluster at all, whatever its owner accepts or mends: to a
// network that is not known or never comes, from one that is not understood, on nodes that run no Linux, by a manifest
// of something else. It is asked before any check is run, so that what decides is said first, and alone. A manifest may
// be missing: that can be mended.
func Possible(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry,
	manifest []unstructured.Unstructured) error {
	request := request(snapshot, change, drivers, manifest)
	k := asked(request)
	_, known := drivers.Get(change.To)
	switch {
	case change.To == "" && k.ByName:
		return nil
	case change.To != "" && !known:
		return kind.Unknown(change.To, drivers)
	}
	if err := kind.Linux(snapshot); err != nil {
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
		return kind.NoneKnown(snapshot, drivers)
	}
	source := found[0]
	switch {
	case source.Untried != "" && (!k.Untried || source.Instead != ""):
		return kind.Refuse(source.Way(), "%s", source.Untried)
	case len(source.Problems) > 0 || k.Possible == nil: // the checks say what is wrong
		return nil
	}
	return k.Possible(request, source)
}

// Named refuses a change that does not name all that its plan needs, such as a manifest: whatever the findings are, no
// plan can be made of it. Checks do without it.
func Named(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry,
	manifest []unstructured.Unstructured) error {
	request := request(snapshot, change, drivers, manifest)
	if k := asked(request); k.Named != nil {
		return k.Named(request)
	}
	return nil
}

// UnderWay refuses a cluster in the middle of a migration, by this or another tool.
func UnderWay(snapshot *cluster.Snapshot) error { return kind.UnderWay(snapshot) }

// Stale says in words what has changed since the plan was made; nothing when the plan still fits.
func Stale(p *Plan, snapshot *cluster.Snapshot) []string { return kind.Stale(p, snapshot) }

// Chosen is a change with its strategy where that follows from the cluster: pods are adopted where they can be, and
// nothing speaks against it, when no range for new addresses is given; and where a range is given with the strategy
// adopt, it is for pods that cannot be, which are created again. Any other change is as it was; the error, that of
// Make, says why nothing follows.
func Chosen(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry,
	manifest []unstructured.Unstructured) (v1alpha1.ChangeSpec, error) {
	request := request(snapshot, change, drivers, manifest)
	if k := asked(request); k.Chosen != nil {
		return k.Chosen(request)
	}
	return change, nil
}

// Comes is the network that is there when a change is done, as far as it can be told, for checks; nil where it cannot.
func Comes(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry, source *cni.Installation,
	manifest []unstructured.Unstructured) (*cni.Installation, error) {
	request, all := request(snapshot, change, drivers, manifest), kinds()
	k := asked(request)
	for _, other := range all { // which changes by the way, by a plan of its own, is the network as for any other
		if other.Asked == nil && other.Name == change.Strategy {
			k = all[len(all)-1]
		}
	}
	if k.Comes == nil {
		return nil, nil
	}
	return k.Comes(request, source)
}

func request(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry,
	manifest []unstructured.Unstructured) *kind.Request {
	return &kind.Request{Snapshot: snapshot, Change: change, Drivers: drivers, Options: Options{Manifest: manifest}}
}
