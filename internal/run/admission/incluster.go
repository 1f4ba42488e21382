package admission

import (
	"bytes"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/step"
)

// fromHere is the hint for plans that only a command line can carry out.
const fromHere = "apply it without --in-cluster, from a machine that stays connected"

// InCluster returns a *Refusal if the controller in the cluster does not run plans like this one. It asks nothing of
// the cluster.
func InCluster(p *plan.Plan) error {
	if signals, err := signal.ParseAll(p.Change.SLO); err != nil || len(signal.Commands(signals)) > 0 {
		return Refuse(v1alpha1.ReasonNotSupported, fromHere, "the plan %s has a signal that is a command on the "+
			"user's "+
			"machine, which the controller does not run", p.Name)
	}
	for i := range p.Steps {
		for _, action := range slices.Concat(p.Steps[i].Actions, p.Steps[i].Undo) {
			switch action.Do.(type) {
			case step.Hook:
				return Refuse(v1alpha1.ReasonNotSupported, fromHere,
					"the plan %s runs commands that add and remove nodes, which the controller does not have", p.Name)
			case step.Command:
				return Refuse(v1alpha1.ReasonNotSupported, fromHere,
					"the plan %s runs a command on the user's machine", p.Name)
			case step.Await:
				return Refuse(v1alpha1.ReasonNotSupported, fromHere,
					"the plan %s waits for a confirmation of its user", p.Name)
			case step.DNS, step.Mirror:
				return Refuse(v1alpha1.ReasonNotSupported, fromHere, "the plan %s needs a second cluster and DNS "+
					"zones, for which the controller has no credentials", p.Name)
			}
			if outdated(action.Object()) {
				return Refuse(v1alpha1.ReasonUnknownFormat,
					newPlan+" of this release, or install the chart of release "+p.Theseus,
					"theseus %[2]s made the plan %[1]s, and the CRD of Migrations of that release differs",
					p.Name, p.Theseus)
			}
		}
	}
	if !p.OnNodes() {
		return Refuse(v1alpha1.ReasonNotSupported, fromHere, "the plan %s changes no node of this cluster", p.Name)
	}
	if origin := p.Origin(); origin != nil {
		return Refuse(v1alpha1.ReasonNotSupported, fromHere,
			"the plan %s follows the flag %s, whose source the controller does not watch", p.Name, origin.Flag)
	}
	return nil
}

// outdated reports whether an object is the CRD of Migrations of another release: its schema may lack fields that the
// controller needs, so the API server would drop them in the middle of the run.
func outdated(object *unstructured.Unstructured) bool {
	name := manifest.Plural("Migration") + "." + v1alpha1.Group
	if object == nil || object.GetKind() != "CustomResourceDefinition" || object.GetName() != name {
		return false
	}
	for _, own := range manifest.CRDs() {
		if own.GetName() == name {
			return !alike(own.Object["spec"], object.Object["spec"])
		}
	}
	return false
}

// alike compares two values as JSON.
func alike(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
