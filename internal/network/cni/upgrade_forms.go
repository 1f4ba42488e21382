package cni

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// rightsPrefix is the name prefix of RBAC objects that exist only while two versions run.
const rightsPrefix = "theseus-upgrade-"

// Owned refuses a network whose agents' DaemonSet belongs to another object, which would revert an upgrade.
func Owned(snapshot *cluster.Snapshot, found *Installation) error {
	set := snapshot.DaemonSet(found.Agent.Namespace, found.Agent.Name)
	if set == nil {
		return nil
	}
	if owner := metav1.GetControllerOf(set); owner != nil {
		return &Refusal{Message: fmt.Sprintf("%s belongs to %s %s, which reverts changes by others",
			found.Agent, owner.Kind, owner.Name),
			Hint: "upgrade it with its owner, and measure that: theseus guard -- COMMAND"}
	}
	return nil
}

// SameAgent refuses a manifest whose agents are not those that run; hint says how to get one that has them.
func SameAgent(found *Installation, agent *unstructured.Unstructured, hint string) error {
	if ref := step.RefOf(agent); ref != found.Agent {
		return &Refusal{Message: fmt.Sprintf("the agent in the manifest is %s, but %s runs", ref, found.Agent),
			Hint: hint}
	}
	if labels := SelectorText(agent); labels != found.Selector {
		return &Refusal{Message: fmt.Sprintf("the agents in the manifest have the labels %s, but the running ones "+
			"have %s", labels, found.Selector), Hint: "the labels of a DaemonSet cannot be changed"}
	}
	return nil
}

// Follow returns a Deployment of a manifest, which is changed with the agents. One that does not run is refused.
func Follow(snapshot *cluster.Snapshot, wanted *unstructured.Unstructured, why string) (*Follower, error) {
	for i := range snapshot.Deployments {
		d := &snapshot.Deployments[i]
		if d.Namespace != wanted.GetNamespace() || d.Name != wanted.GetName() {
			continue
		}
		live, err := Plain(d)
		if err != nil {
			return nil, err
		}
		return &Follower{Ref: step.RefOf(wanted), Why: why,
			Form: TemplateForm(live, wanted, WorkloadVersion(live), WorkloadVersion(wanted))}, nil
	}
	return nil, &Refusal{Message: fmt.Sprintf("the manifest contains Deployment %s/%s, which does not run here",
		wanted.GetNamespace(), wanted.GetName()),
		Hint: "remove it from the manifest, or first add it in the present version"}
}

// Complete refuses a manifest that lacks a running Deployment of the network, of which there are some names: it would
// stay at the old version. given are those of the manifest.
func Complete(snapshot *cluster.Snapshot, found *Installation, names []string, given []Follower, hint string) error {
	for i := range snapshot.Deployments {
		d := &snapshot.Deployments[i]
		if d.Namespace == found.Agent.Namespace && slices.Contains(names, d.Name) &&
			!slices.ContainsFunc(given, func(f Follower) bool { return f.Ref.Name == d.Name }) {
			return &Refusal{Message: fmt.Sprintf("Deployment %s/%s runs, and the manifest lacks it", d.Namespace,
				d.Name), Hint: hint}
		}
	}
	return nil
}

// Plain converts a typed object to a tree, without fields that are empty in the type and absent in the API.
func Plain(typed any) (*unstructured.Unstructured, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: prune(tree)}, nil
}

func prune(tree map[string]any) map[string]any {
	for key, value := range tree {
		if value == nil {
			delete(tree, key)
		}
		if below, ok := value.(map[string]any); ok {
			prune(below)
		}
	}
	return tree
}

// TemplateForm changes the pod template as a whole, because lists cannot be merged.
func TemplateForm(live, wanted *unstructured.Unstructured, from, to string) Form {
	ref := step.RefOf(wanted)
	template := func(of, other *unstructured.Unstructured) any {
		one, _, _ := unstructured.NestedMap(of.Object, "spec", "template")
		two, _, _ := unstructured.NestedMap(other.Object, "spec", "template")
		return map[string]any{"spec": map[string]any{"template": instead(one, two)}}
	}
	return Form{
		New: []step.Action{patch(ref, "set the pod template of "+ref.String()+" to "+to, template(wanted, live))},
		Old: []step.Action{patch(ref, "set the pod template of "+ref.String()+" back to "+from,
			template(live, wanted))},
	}
}

// instead returns a merge patch that replaces other by wanted.
func instead(wanted, other map[string]any) map[string]any {
	patch := map[string]any{}
	for key := range other {
		patch[key] = nil
	}
	for key, value := range wanted {
		one, isMap := value.(map[string]any)
		if two, both := other[key].(map[string]any); isMap && both {
			patch[key] = instead(one, two)
			continue
		}
		patch[key] = value
	}
	return patch
}

func patch(ref step.Ref, title string, value any) step.Action {
	return step.Action{Do: step.Patch{Ref: ref, Merge: Raw(value)}, Title: title}
}

// Strategies are the DaemonSet's update strategies: none, the current one, and that of the manifest.
func Strategies(live, wanted *unstructured.Unstructured) (hold, unhold, resume step.Action) {
	ref := step.RefOf(wanted)
	now, _, _ := unstructured.NestedMap(live.Object, "spec", "updateStrategy")
	then, ok, _ := unstructured.NestedMap(wanted.Object, "spec", "updateStrategy")
	if !ok {
		then = now
	}
	held := map[string]any{"type": "OnDelete"}
	set := func(title string, strategy, other map[string]any) step.Action {
		return patch(ref, title, map[string]any{"spec": map[string]any{"updateStrategy": instead(strategy, other)}})
	}
	return set("set the update strategy of "+ref.String()+" to OnDelete", held, now),
		set("restore the update strategy of "+ref.String(), now, held),
		set("set the update strategy of "+ref.String()+" as in your manifest", then, held)
}

// WorkloadVersion is the tag of the image of a workload's first container.
func WorkloadVersion(workload *unstructured.Unstructured) string {
	for _, container := range ContainersOf(workload, "containers") {
		image, _ := container["image"].(string)
		return cluster.ImageOf(image).Tag
	}
	return ""
}

// Config changes a ConfigMap together with the agents' form, because agents read it when they start.
func (u *Upgrade) Config(snapshot *cluster.Snapshot, wanted *unstructured.Unstructured) {
	now := snapshot.ConfigMap(wanted.GetNamespace(), wanted.GetName())
	if now == nil {
		u.Objects = append(u.Objects, *wanted)
		return
	}
	live, next := map[string]any{}, map[string]any{}
	for key, value := range now.Data {
		live[key] = value
	}
	if data, ok, _ := unstructured.NestedMap(wanted.Object, "data"); ok {
		next = data
	}
	if maps.EqualFunc(live, next, func(a, b any) bool { return a == b }) {
		return
	}
	ref := step.RefOf(wanted)
	set := func(title string, one, two map[string]any) step.Action {
		return patch(ref, title, map[string]any{"data": instead(one, two)})
	}
	u.Agent.New = slices.Insert(u.Agent.New, 0, set("update "+ref.String()+" to "+u.Installation.Version, next, live))
	u.Agent.Old = slices.Insert(u.Agent.Old, 0, set("restore "+ref.String(), live, next))
}

// Beside copies a role, or its binding, under a name of Theseus, so that both versions have their permissions while
// both run.
func Beside(object *unstructured.Unstructured, all []unstructured.Unstructured) unstructured.Unstructured {
	copied := *object.DeepCopy()
	copied.SetName(rightsPrefix + object.GetName())
	kind, _, _ := unstructured.NestedString(object.Object, "roleRef", "kind")
	name, bound, _ := unstructured.NestedString(object.Object, "roleRef", "name")
	if bound && slices.ContainsFunc(all,
		func(o unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name }) {
		_ = unstructured.SetNestedField(copied.Object, rightsPrefix+name, "roleRef", "name")
	}
	return copied
}

// Lossless refuses CRDs that lack a field in use: the next write of the object would lose it.
func Lossless(definitions, objects []unstructured.Unstructured) error {
	for i := range definitions {
		spec, _, _ := unstructured.NestedMap(definitions[i].Object, "spec")
		group, _ := spec["group"].(string)
		kind, _, _ := unstructured.NestedString(spec, "names", "kind")
		versions, _ := spec["versions"].([]any)
		for j := range objects {
			gvk := objects[j].GroupVersionKind()
			if gvk.Group != group || gvk.Kind != kind {
				continue
			}
			lost := kept(versions, gvk.Version, objects[j].Object)
			if lost == "" {
				continue
			}
			return &Refusal{Message: fmt.Sprintf("the CRD of %s in the manifest lacks %s, which %s %s has: the field "+
				"would be lost", kind, lost, kind, objects[j].GetName()),
				Hint: "remove the CRDs from the manifest: older agents work with newer CRDs"}
		}
	}
	return nil
}

// kept names the first field of an object that a CRD does not have; empty if it has all.
func kept(versions []any, wanted string, object map[string]any) string {
	for _, one := range versions {
		v, _ := one.(map[string]any)
		if served, _ := v["served"].(bool); v["name"] != wanted || !served {
			continue
		}
		schema, ok, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
		if !ok {
			return ""
		}
		bare := maps.Clone(object)
		for _, every := range []string{"apiVersion", "kind", "metadata"} {
			delete(bare, every)
		}
		return unknown(schema, bare, "")
	}
	return "version " + wanted
}

// unknown names the first field that a schema would prune.
func unknown(schema map[string]any, value any, path string) string {
	if open, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool); open {
		return ""
	}
	switch value := value.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		more, others := schema["additionalProperties"]
		if embedded, _ := schema["x-kubernetes-embedded-resource"].(bool); embedded {
			return ""
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			below, known := properties[key].(map[string]any)
			if !known && others {
				below, _ = more.(map[string]any) // true allows everything
			}
			if !known && !others {
				return strings.TrimPrefix(path+"."+key, ".")
			}
			if below == nil {
				continue
			}
			if lost := unknown(below, value[key], path+"."+key); lost != "" {
				return lost
			}
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for _, item := range value {
			if lost := unknown(items, item, path); items != nil && lost != "" {
				return lost
			}
		}
	}
	return ""
}
