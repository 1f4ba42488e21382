package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

// translatedFrom is the annotation of objects that Translate makes.
const translatedFrom = "theseus.dev/translated-from"

// Judgement is what changes if a cluster's policies are replaced by their translation.
type Judgement struct {
	Differences []Difference
	Outside     []Outside
	// Unjudged are policies, or parts of them, that the model leaves out.
	Unjudged []Gap
	Gaps     []Gap
}

// Judge compares the policies of a snapshot under one network with their translation under another: over all pairs of
// its pods, all ports, and all addresses outside of the cluster.
func (t *Translation) Judge(snapshot *cluster.Snapshot, source, target Profile) Judgement {
	with := *snapshot
	with.Other = slices.DeleteFunc(slices.Clone(snapshot.Other), func(o unstructured.Unstructured) bool {
		return madeBefore(&o) || slices.ContainsFunc(t.Objects, func(made unstructured.Unstructured) bool {
			return sameObject(&made, &o)
		})
	})
	with.Other = append(with.Other, t.Objects...)
	m := Build(&with, source, target)
	return Judgement{m.Differences(), m.OutsideDifferences(), m.Unevaluated(), m.Gaps()}
}

// madeBefore reports whether an object is of an earlier translation, which a new one replaces.
func madeBefore(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == ciliumGroup && o.GetAnnotations()[translatedFrom] != ""
}

func sameObject(a, b *unstructured.Unstructured) bool {
	return a.GroupVersionKind().GroupKind() == b.GroupVersionKind().GroupKind() &&
		a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}

// clashes reports policies that would be overwritten.
func (t *translator) clashes(snapshot *cluster.Snapshot) {
	for i := range t.out.Objects {
		made := &t.out.Objects[i]
		for _, there := range snapshot.OtherOf(ciliumGroup, made.GetKind()) {
			if sameObject(made, &there) && !madeBefore(&there) {
				t.refuse(finding.Subject{Kind: made.GetKind(),
					Namespace: made.GetNamespace(), Name: made.GetName()}, "",
					unequal("the cluster has a policy of this name, which the translation would overwrite",
						"rename one of them"))
			}
		}
	}
}
