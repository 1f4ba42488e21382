package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

func apply(object unstructured.Unstructured) step.Action {
	return step.Action{Op: step.Apply, Object: &object, Title: "create " + step.RefOf(&object).String()}
}

func remove(ref step.Ref) step.Action {
	return step.Action{Op: step.Delete, Ref: &ref, Title: "delete " + ref.String()}
}

func probe(title string, set step.PathSet) step.Action {
	return step.Action{Op: step.Probe, Paths: &set, Title: title, Timeout: step.Duration(2 * time.Minute)}
}

func onNode(node, verb, title string, args any) step.Action {
	return step.Action{Op: step.Node, NodeName: node, Verb: verb, Args: canonical(args), Title: title}
}

// canonical encodes plain data with sorted keys, so that reading and writing a plan changes nothing.
func canonical(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err == nil {
		var tree any
		if err = json.Unmarshal(data, &tree); err == nil {
			data, err = json.Marshal(tree)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("encoding plain data: %v", err))
	}
	return data
}

// Leave takes back what an installation of Theseus' agent applied, but the journal, its definitions and the
// namespace that it lives in.
func Leave(install []step.Action) []step.Action {
	kept := []string{v1alpha1.Namespace, manifest.Plural("Migration") + "." + v1alpha1.Group, manifest.Plural("JournalPage") + "." + v1alpha1.Group}
	var actions []step.Action
	for _, action := range slices.Backward(install) {
		if action.Op == step.Apply && !slices.Contains(kept, action.Object.GetName()) {
			actions = append(actions, remove(step.RefOf(action.Object)))
		}
	}
	return actions
}
