package nodepool

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// names are nodes by slot.
type names map[string]string

// names reads which nodes have a slot, if an action may name a slot whose node is not known yet.
func (a *Actor) names(ctx context.Context, node string, others bool) (names, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if !slices.Contains(a.Slots, node) && !others {
		return nil, nil
	}
	_, known := a.bound[node]
	if !known && len(a.bound) < len(a.Slots) {
		list, err := a.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelSlot})
		if err != nil {
			return nil, err
		}
		if a.bound == nil {
			a.bound = map[string]string{}
		}
		for i := range list.Items {
			if slot := list.Items[i].Labels[v1alpha1.LabelSlot]; slices.Contains(a.Slots, slot) {
				a.bound[slot] = list.Items[i].Name
			}
		}
	}
	copied := names{}
	for slot, node := range a.bound {
		copied[slot] = node
	}
	return copied, nil
}

// mentions says whether an action may name slots elsewhere than in NodeName.
func mentions(a step.Action) bool {
	return a.Paths != nil || a.Condition != nil || a.Pods != nil || a.Ref != nil && a.Ref.Kind == "Node" ||
		a.Object != nil && a.Object.GetKind() == "Pod"
}

func (n names) of(name string) string {
	if node, ok := n[name]; ok {
		return node
	}
	return name
}

func (n names) all(list []string) []string {
	named := slices.Clone(list)
	for i := range named {
		named[i] = n.of(named[i])
	}
	return named
}

// action replaces slots in an action by the names of their nodes. Objects keep their own names, except Nodes.
func (n names) action(a step.Action) step.Action {
	a.NodeName = n.of(a.NodeName)
	a.Ref = n.ref(a.Ref)
	if a.Condition != nil {
		c := n.condition(*a.Condition)
		a.Condition = &c
	}
	if a.Pods != nil {
		pods := *a.Pods
		pods.Node = n.of(pods.Node)
		a.Pods = &pods
	}
	if a.Paths != nil {
		a.Paths = &step.PathSet{Old: n.all(a.Paths.Old), New: n.all(a.Paths.New), WithoutNew: n.all(a.Paths.WithoutNew),
			Leaving: n.all(a.Paths.Leaving)}
	}
	if a.Object != nil && a.Object.GetKind() == "Pod" {
		if slot, _, _ := unstructured.NestedString(a.Object.Object, "spec", "nodeName"); n.of(slot) != slot {
			a.Object = a.Object.DeepCopy()
			_ = unstructured.SetNestedField(a.Object.Object, n.of(slot), "spec", "nodeName") // the field exists
		}
	}
	return a
}

func (n names) condition(c step.Condition) step.Condition {
	c.Node, c.Nodes, c.Ref = n.of(c.Node), n.all(c.Nodes), n.ref(c.Ref)
	return c
}

func (n names) ref(ref *step.Ref) *step.Ref {
	if ref == nil || ref.Kind != "Node" || ref.APIVersion != "v1" {
		return ref
	}
	return &step.Ref{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: n.of(ref.Name)}
}
