package cni

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// StagedSuffix makes a name that no container runtime reads: they take .conf, .conflist and .json.
const StagedSuffix = ".theseus"

// Staged names a target's configuration: the user's own name where it sorts before the source's, another where not.
func Staged(own, other string, source *Installation) step.ConfArgs {
	active := own
	if source != nil && source.Capabilities.ConfName != "" && active >= source.Capabilities.ConfName {
		active = other
	}
	return step.ConfArgs{Staged: active + StagedSuffix, Active: active}
}

// Parts are objects in the order of deletion, which is that of application backwards.
func Parts(lists ...[]unstructured.Unstructured) []step.Ref {
	var all []step.Ref
	for _, list := range lists {
		for i := len(list) - 1; i >= 0; i-- {
			all = append(all, step.RefOf(&list[i]))
		}
	}
	return all
}

// Finish makes the actions that turn the joint form into the user's own: what differs is applied, for pods that
// are made from then on. The joint form may have more objects, which come last.
func Finish(joint, final []unstructured.Unstructured) []step.Action {
	var actions []step.Action
	for i := range final {
		if equality.Semantic.DeepEqual(joint[i].Object, final[i].Object) {
			continue
		}
		object := final[i].DeepCopy()
		onDelete(object)
		actions = append(actions, step.Action{
			ID: fmt.Sprintf("final-%d", len(actions)), Op: step.Apply, Object: object,
			Title: "give " + step.RefOf(object).String() + " its own form",
		})
	}
	return actions
}

// onDelete leaves the pods of a DaemonSet as they are until somebody deletes them.
func onDelete(object *unstructured.Unstructured) {
	if object.GetKind() == "DaemonSet" {
		_ = unstructured.SetNestedMap(object.Object, map[string]any{"type": "OnDelete"}, "spec", "updateStrategy")
	}
}

// HandOver takes LabelManaged off every object, and gives DaemonSets back the user's update strategy, which is the API's
// own where the user has none.
func HandOver(lists ...[]unstructured.Unstructured) []step.Action {
	var actions []step.Action
	for _, list := range lists {
		for i := range list {
			patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelManaged: nil}}}
			strategy, ok, _ := unstructured.NestedMap(list[i].Object, "spec", "updateStrategy")
			switch {
			case ok:
				patch["spec"] = map[string]any{"updateStrategy": strategy}
			case list[i].GetKind() == "DaemonSet":
				patch["spec"] = map[string]any{"updateStrategy": nil}
			}
			ref := step.RefOf(&list[i])
			actions = append(actions, step.Action{
				ID: fmt.Sprintf("hand-over-%d", len(actions)), Op: step.Patch, Ref: &ref, Patch: Raw(patch),
				Title: "hand " + ref.String() + " over",
			})
		}
	}
	return actions
}

// Raw encodes plain data, which cannot fail.
func Raw(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding a patch: %v", err))
	}
	return data
}
