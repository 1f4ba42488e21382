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
	// Pods is the number of pods that policies can select. Without one, nothing was judged.
	Pods int
}

// Judge compares the policies of a snapshot under one network with their translation under another: over all pairs of
// its pods, all ports, and all addresses outside of the cluster. Nothing removes the policies of an earlier translation
// that this one does not make: they stay in force.
func (t *Translation) Judge(snapshot *cluster.Snapshot, source, target Profile) Judgement {
	with := *snapshot
	with.Other = slices.DeleteFunc(slices.Clone(snapshot.Other), func(o unstructured.Unstructured) bool {
		return t.makes(&o)
	})
	with.Other = append(with.Other, t.Objects...)
	m := Build(&with, source, target)
	pods := 0
	for _, c := range m.classes {
		for _, e := range c.endpoints {
			pods += len(e.pods)
		}
	}
	return Judgement{m.Differences(), m.OutsideDifferences(), m.Unevaluated(), m.Gaps(), pods}
}

// makes reports whether an object is one that the translation replaces.
func (t *Translation) makes(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(t.Objects, func(made unstructured.Unstructured) bool { return sameObject(&made, o) })
}

// left lists the policies of earlier translations that this one does not make.
func (t *translator) left(snapshot *cluster.Snapshot) {
	for _, kind := range []string{"CiliumClusterwideNetworkPolicy", "CiliumNetworkPolicy"} {
		for _, o := range snapshot.OtherOf(ciliumGroup, kind) {
			if !madeBefore(&o) || t.out.makes(&o) {
				continue
			}
			r := Remark{Policy: finding.Subject{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()},
				Text: "an earlier translation made it, of " + o.GetAnnotations()[translatedFrom] + ", and this one " +
					"does not: kubectl apply leaves it in the cluster, and Cilium goes on enforcing it",
				Hint: "kubectl delete ciliumclusterwidenetworkpolicy " + o.GetName()}
			if ns := o.GetNamespace(); ns != "" {
				r.Hint = "kubectl delete ciliumnetworkpolicy -n " + ns + " " + o.GetName()
			}
			t.out.Left = append(t.out.Left, r)
		}
	}
}

// madeBefore reports whether an object is of an earlier translation.
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
