package step

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Write is an object that steps write or delete.
type Write struct {
	Ref
	// Deletes is true if a step deletes it.
	Deletes bool
}

// GroupKind is the kind of the object, in any version.
func (w Write) GroupKind() schema.GroupKind {
	gv, _ := schema.ParseGroupVersion(w.APIVersion) // an invalid version has no resource; the action itself reports it
	return schema.GroupKind{Group: gv.Group, Kind: w.Kind}
}

// Writes returns the objects that steps, or their undo, apply, patch or delete, each once, in the order of the steps.
// It leaves out nodes, pods, and Theseus' own objects.
func Writes(steps []Step) []Write {
	var all []Write
	at := map[Ref]int{}
	for i := range steps {
		for _, a := range slices.Concat(steps[i].Actions, steps[i].Undo) {
			w, ok := WriteOf(a)
			if !ok {
				continue
			}
			if known, ok := at[w.Ref]; ok {
				all[known].Deletes = all[known].Deletes || w.Deletes
				continue
			}
			at[w.Ref] = len(all)
			all = append(all, w)
		}
	}
	return all
}

// WriteOf is what an action writes; false for what Writes leaves out.
func WriteOf(a Action) (Write, bool) {
	w := Write{Ref: a.Ref()}
	switch do := a.Do.(type) {
	case Apply:
		if do.Object != nil && do.Object.GetLabels()[v1alpha1.LabelManaged] != "" {
			return w, false
		}
	case Patch:
	case Delete:
		w.Deletes = true
	default:
		return w, false
	}
	gk := w.GroupKind()
	return w, w.Name != "" && !(gk.Group == "" && (gk.Kind == "Node" || gk.Kind == "Pod")) && !own(w.Ref, gk.Group)
}

func own(ref Ref, group string) bool {
	return group == v1alpha1.Group || ref.Namespace == v1alpha1.Namespace ||
		ref.Kind == "Namespace" && ref.Name == v1alpha1.Namespace ||
		strings.HasSuffix(ref.Name, "."+v1alpha1.Group) || strings.HasPrefix(ref.Name, "theseus-")
}
