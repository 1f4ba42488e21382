package calico

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// finish makes the actions that turn the joint form into the user's own: first what differs is applied, the
// agent rolling over the nodes one by one, then the mark of Theseus goes from every object.
func finish(joint, final *manifest) []step.Action {
	var actions []step.Action
	for i := range final.objects {
		if equality.Semantic.DeepEqual(joint.objects[i].Object, final.objects[i].Object) {
			continue
		}
		object := final.objects[i].DeepCopy()
		oneByOne(object)
		actions = append(actions, step.Action{
			ID: fmt.Sprintf("final-%d", len(actions)), Op: step.Apply, Object: object,
			Title: "give " + step.RefOf(object).String() + " its own form",
		})
	}
	agent := step.RefOf(final.agent)
	actions = append(actions, step.Action{
		ID: fmt.Sprintf("final-%d", len(actions)), Op: step.Wait,
		Title:     "wait until " + agent.String() + " runs its own form on every node",
		Condition: &step.Condition{Kind: step.Rolled, Ref: &agent},
		Timeout:   step.Duration(24 * time.Hour),
	})
	return append(actions, unlabel(joint, final, len(actions))...)
}

// oneByOne keeps a DaemonSet from taking down more than one of its pods at a time while it rolls.
func oneByOne(object *unstructured.Unstructured) {
	if object.GetKind() == "DaemonSet" {
		_ = unstructured.SetNestedMap(object.Object, map[string]any{
			"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": int64(1)}}, "spec", "updateStrategy")
	}
}

// unlabel takes LabelManaged off every object, and gives the agent back the user's update strategy.
func unlabel(joint, final *manifest, from int) []step.Action {
	var actions []step.Action
	for _, list := range [][]unstructured.Unstructured{joint.definitions, final.objects} {
		for i := range list {
			patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelManaged: nil}}}
			if strategy, ok, _ := unstructured.NestedMap(list[i].Object, "spec", "updateStrategy"); ok {
				patch["spec"] = map[string]any{"updateStrategy": strategy}
			}
			ref := step.RefOf(&list[i])
			actions = append(actions, step.Action{
				ID: fmt.Sprintf("final-%d", from+len(actions)), Op: step.Patch, Ref: &ref, Patch: raw(patch),
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
