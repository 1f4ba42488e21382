package cni

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// StagedSuffix makes a name that container runtimes ignore: they read .conf, .conflist and .json.
const StagedSuffix = ".theseus"

// Staged names a target's configuration: the user's own name if it sorts before the source's, else another one.
func Staged(own, other string, source *Installation) step.ConfArgs {
	active := own
	if source != nil && source.Capabilities.ConfName != "" && active >= source.Capabilities.ConfName {
		active = other
	}
	return step.ConfArgs{Staged: active + StagedSuffix, Active: active}
}

// Parts returns objects in the order of deletion, which is the reverse of the order of application.
func Parts(lists ...[]unstructured.Unstructured) []step.Ref {
	var all []step.Ref
	for _, list := range lists {
		for i := len(list) - 1; i >= 0; i-- {
			all = append(all, step.RefOf(&list[i]))
		}
	}
	return all
}

// Finish makes the actions that turn the joint form into the user's own: they apply the differences, which affect pods
// created from then on. Objects that only the joint form has must come last.
func Finish(joint, final []unstructured.Unstructured) []step.Action {
	var actions []step.Action
	for i := range final {
		if equality.Semantic.DeepEqual(joint[i].Object, final[i].Object) {
			continue
		}
		object := final[i].DeepCopy()
		onDelete(object)
		actions = append(actions, step.Action{
			ID: fmt.Sprintf("final-%d", len(actions)), Do: step.Apply{Object: object},
			Title: "apply " + step.RefOf(object).String() + " as in your manifest",
		})
	}
	return actions
}

// onDelete keeps the pods of a DaemonSet until they are deleted explicitly.
func onDelete(object *unstructured.Unstructured) {
	if object.GetKind() == "DaemonSet" {
		_ = unstructured.SetNestedMap(object.Object, map[string]any{"type": "OnDelete"}, "spec", "updateStrategy")
	}
}

// HandOver removes LabelManaged from every object, and restores the user's update strategy of DaemonSets, or the API's
// default if the user has none.
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
				ID: fmt.Sprintf("hand-over-%d", len(actions)), Do: step.Patch{Ref: ref, Merge: Raw(patch)},
				Title: "stop managing " + ref.String(),
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
