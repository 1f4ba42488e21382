package calico

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// finish makes the actions that turn the joint form into the user's own: what differs is applied, for pods that
// are made from then on.
func finish(joint, final *manifest) []step.Action {
	var actions []step.Action
	for i := range final.objects {
		if equality.Semantic.DeepEqual(joint.objects[i].Object, final.objects[i].Object) {
			continue
		}
		object := final.objects[i].DeepCopy()
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

// unlabel takes LabelManaged off every object, and gives the agent back the user's update strategy.
func unlabel(joint, final *manifest) []step.Action {
	var actions []step.Action
	for _, list := range [][]unstructured.Unstructured{joint.definitions, final.objects} {
		for i := range list {
			patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelManaged: nil}}}
			if strategy, ok, _ := unstructured.NestedMap(list[i].Object, "spec", "updateStrategy"); ok {
				patch["spec"] = map[string]any{"updateStrategy": strategy}
			}
			ref := step.RefOf(&list[i])
			actions = append(actions, step.Action{
				ID: fmt.Sprintf("hand-over-%d", len(actions)), Op: step.Patch, Ref: &ref, Patch: raw(patch),
				Title: "hand " + ref.String() + " over",
			})
		}
	}
	return actions
}

// raw encodes plain data, which cannot fail.
func raw(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding a patch: %v", err))
	}
	return data
}
