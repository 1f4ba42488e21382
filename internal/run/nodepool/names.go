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
	switch a.Do.(type) {
	case step.Probe, step.Wait, step.Evict:
		return true
	case step.Apply:
		return a.Ref().Kind == "Pod"
	}
	return a.Ref().Kind == "Node"
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
	switch do := a.Do.(type) {
	case step.Node:
		do.NodeName = n.of(do.NodeName)
		a.Do = do
	case step.Restart:
		do.NodeName = n.of(do.NodeName)
		a.Do = do
	case step.Taint:
		do.NodeName = n.of(do.NodeName)
		a.Do = do
	case step.Untaint:
		do.NodeName = n.of(do.NodeName)
		a.Do = do
	case step.Delete:
		do.Ref = n.ref(do.Ref)
		a.Do = do
	case step.Patch:
		do.Ref = n.ref(do.Ref)
		a.Do = do
	case step.Wait:
		a.Do = step.Wait{Condition: n.condition(do.Condition)}
	case step.Evict:
		do.Pods.Node = n.of(do.Pods.Node)
		a.Do = do
	case step.Probe:
		a.Do = step.Probe{Paths: step.PathSet{Old: n.all(do.Paths.Old), New: n.all(do.Paths.New),
			WithoutNew: n.all(do.Paths.WithoutNew), Leaving: n.all(do.Paths.Leaving)}}
	case step.Apply:
		if a.Ref().Kind != "Pod" {
			break
		}
		if slot, _, _ := unstructured.NestedString(do.Object.Object, "spec", "nodeName"); n.of(slot) != slot {
			pod := do.Object.DeepCopy()
			_ = unstructured.SetNestedField(pod.Object, n.of(slot), "spec", "nodeName") // the field exists
			a.Do = step.Apply{Object: pod}
		}
	}
	return a
}

func (n names) condition(c step.Condition) step.Condition {
	switch is := c.Is.(type) {
	case step.PodReady:
		is.Node = n.of(is.Node)
		c.Is = is
	case step.NodeReady:
		is.Node = n.of(is.Node)
		c.Is = is
	case step.NoPods:
		is.Node = n.of(is.Node)
		c.Is = is
	case step.PodGone:
		is.Node = n.of(is.Node)
		c.Is = is
	case step.AgentSays:
		is.Node = n.of(is.Node)
		c.Is = is
	case step.NodesAmong:
		c.Is = step.NodesAmong{Nodes: n.all(is.Nodes)}
	case step.Gone:
		c.Is = step.Gone{Ref: n.ref(is.Ref)}
	case step.Has:
		is.Ref = n.ref(is.Ref)
		c.Is = is
	case step.Reports:
		is.Ref = n.ref(is.Ref)
		c.Is = is
	}
	return c
}

func (n names) ref(ref step.Ref) step.Ref {
	if ref.Kind == "Node" && ref.APIVersion == "v1" {
		ref.Name = n.of(ref.Name)
	}
	return ref
}
