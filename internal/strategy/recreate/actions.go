package recreate

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

// beside lets actions be done together: none of them needs another.
func beside(actions []step.Action) []step.Action {
	for i := range actions {
		actions[i].Beside = i > 0
	}
	return actions
}

// onEach makes an action for each of several nodes, to be done together.
func onEach(nodes []string, action func(node string) step.Action) []step.Action {
	var actions []step.Action
	for _, node := range nodes {
		actions = append(actions, action(node))
	}
	return beside(actions)
}

// number gives actions IDs that are unique in the plan.
func number(stepID, prefix string, actions []step.Action) {
	for i := range actions {
		actions[i].ID = fmt.Sprintf("%s/%s%d", stepID, prefix, i+1)
	}
}

// name is how people name an object: its kind, and namespace/name.
func name(ref step.Ref) string {
	if ref.Namespace == "" {
		return ref.Kind + " " + ref.Name
	}
	return ref.Kind + " " + ref.Namespace + "/" + ref.Name
}

func apply(object unstructured.Unstructured) step.Action {
	return step.Action{Op: step.Apply, Object: &object, Title: "create " + name(step.RefOf(&object))}
}

func remove(ref step.Ref) step.Action {
	return step.Action{Op: step.Delete, Ref: &ref, Title: "delete " + name(ref)}
}

func wait(title string, condition step.Condition, timeout time.Duration) step.Action {
	return step.Action{Op: step.Wait, Title: title, Condition: &condition, Timeout: step.Duration(timeout)}
}

func established(ref step.Ref) step.Condition {
	return step.Condition{Kind: step.Established, Ref: &ref}
}

func rolled(ref step.Ref) step.Condition { return step.Condition{Kind: step.Rolled, Ref: &ref} }

func gone(ref step.Ref) step.Condition { return step.Condition{Kind: step.Gone, Ref: &ref} }

// onNode asks the agent of a node for a verb. Arguments are plain data, so encoding cannot fail.
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

func labelNode(node string, value any, title string) step.Action {
	return step.Action{
		Op: step.Patch, Title: title,
		Ref:   &step.Ref{APIVersion: "v1", Kind: "Node", Name: node},
		Patch: canonical(map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelTarget: value}}}),
	}
}

// pending is the soft taint: where there is a choice, pods go to nodes that are switched.
func pending() *corev1.Taint {
	return &corev1.Taint{Key: v1alpha1.TaintPending, Value: "true", Effect: corev1.TaintEffectPreferNoSchedule}
}

func taint(node string) step.Action {
	return step.Action{Op: step.Taint, NodeName: node, Taint: pending(), Title: "prefer other nodes to " + node + " for new pods"}
}

func untaint(node string) step.Action {
	return step.Action{Op: step.Untaint, NodeName: node, Taint: pending(), Title: "let new pods come to " + node + " again"}
}

func evict(node, network string, cidrs []string, pods int) step.Action {
	return step.Action{
		Op: step.Evict, Pods: &step.PodSet{Node: node, CIDRs: cidrs},
		Title:   fmt.Sprintf("evict the pods of %s that are on %s (%s)", node, network, strings.Join(cidrs, ", ")),
		Timeout: step.Duration(10*time.Minute + time.Duration(pods)*2*time.Minute),
	}
}

func probe(title string, set step.PathSet) step.Action {
	return step.Action{Op: step.Probe, Paths: &set, Title: title, Timeout: step.Duration(2 * time.Minute)}
}

func restart(agent step.Ref, node string) step.Action {
	return step.Action{Op: step.Restart, Ref: &agent, NodeName: node, Title: "restart the agent of " + name(agent) + " on " + node,
		Timeout: step.Duration(5 * time.Minute)}
}

func every() []string { return []string{step.EveryNode} }

func probePod(node, network string) step.Ref {
	return step.Ref{APIVersion: "v1", Kind: "Pod", Namespace: v1alpha1.Namespace, Name: manifest.ProbePodName(node, network)}
}

func probePodReady(node, network string) step.Condition {
	return step.Condition{
		Kind: step.PodReady, Node: node, Namespace: v1alpha1.Namespace,
		Selector: v1alpha1.LabelProbe + "=" + network + "," + manifest.LabelNode + "=" + manifest.NodeValue(node),
	}
}

// backwards turns applied objects into their deletion, last first.
func backwards(objects []unstructured.Unstructured) []step.Action {
	var actions []step.Action
	for i := len(objects) - 1; i >= 0; i-- {
		actions = append(actions, remove(step.RefOf(&objects[i])))
	}
	return actions
}
