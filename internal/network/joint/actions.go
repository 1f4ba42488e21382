package joint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
	"github.com/theseus-cni/theseus/internal/step"
)

// Together lets actions run concurrently: they are independent of each other.
func Together(actions []step.Action) []step.Action {
	for i := range actions {
		actions[i].Together = i > 0
	}
	return actions
}

// OnEach makes an action for each of several nodes, to run concurrently.
func OnEach(nodes []string, action func(node string) step.Action) []step.Action {
	actions := slices.Grow([]step.Action(nil), len(nodes))
	for _, node := range nodes {
		actions = append(actions, action(node))
	}
	return Together(actions)
}

// Name formats an object for people: kind and namespace/name.
func Name(ref step.Ref) string {
	if ref.Namespace == "" {
		return ref.Kind + " " + ref.Name
	}
	return ref.Kind + " " + ref.Namespace + "/" + ref.Name
}

// Apply applies an object.
func Apply(object unstructured.Unstructured) step.Action {
	return step.Action{Do: step.Apply{Object: &object}, Title: "create " + Name(step.RefOf(&object))}
}

// Remove deletes an object.
func Remove(ref step.Ref) step.Action {
	return step.Action{Do: step.Delete{Ref: ref}, Title: "delete " + Name(ref)}
}

// Wait waits for a condition.
func Wait(title string, condition step.Condition, timeout time.Duration) step.Action {
	return step.Action{Do: step.Wait{Condition: condition}, Title: title, Timeout: step.Duration(timeout)}
}

func established(ref step.Ref) step.Condition {
	return step.Condition{Is: step.Established{Ref: ref}}
}

// Rolled is the condition that a workload's rollout is complete.
func Rolled(ref step.Ref) step.Condition { return step.Condition{Is: step.Rolled{Ref: ref}} }

// Gone is the condition that an object does not exist.
func Gone(ref step.Ref) step.Condition { return step.Condition{Is: step.Gone{Ref: ref}} }

// OnNode asks the agent of a node for a verb. Arguments are plain data, so encoding cannot fail. Those of many nodes
// are encoded once, by Canonical.
func OnNode(node, verb, title string, args any) step.Action {
	encoded, is := args.(json.RawMessage)
	if !is {
		encoded = Canonical(args)
	}
	return step.Action{Do: step.Node{NodeName: node, Verb: verb, Args: encoded}, Title: title}
}

// Canonical encodes plain data with sorted keys, so that reading and writing a plan does not change it.
func Canonical(value any) json.RawMessage {
	data, err := canonical.JSON(value)
	if err != nil {
		panic(fmt.Sprintf("encoding plain data: %v", err))
	}
	return data
}

// Label sets a label of a node, or removes it if value is nil.
func Label(node, key string, value any, title string) step.Action {
	return step.Action{
		Do: step.Patch{
			Ref:   step.Ref{APIVersion: "v1", Kind: "Node", Name: node},
			Merge: Canonical(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})},
		Title: title,
	}
}

// pending is the soft taint (PreferNoSchedule): pods prefer nodes that are switched.
func pending() corev1.Taint {
	return corev1.Taint{Key: v1alpha1.TaintPending, Value: "true", Effect: corev1.TaintEffectPreferNoSchedule}
}

// Taint makes new pods prefer other nodes.
func Taint(node string) step.Action {
	return step.Action{Do: step.Taint{NodeName: node, Taint: pending()},
		Title: "taint " + node + " so that new pods prefer other nodes"}
}

// Untaint reverts Taint.
func Untaint(node string) step.Action {
	return step.Action{Do: step.Untaint{NodeName: node, Taint: pending()}, Title: "remove the taint from " + node}
}

// repelling is the hard taint (NoSchedule): only pods that tolerate every taint are scheduled to the node.
func repelling() corev1.Taint {
	return corev1.Taint{Key: v1alpha1.TaintPending, Value: "true", Effect: corev1.TaintEffectNoSchedule}
}

// Repel repels new pods from a node.
func Repel(node string) step.Action {
	return step.Action{Do: step.Taint{NodeName: node, Taint: repelling()},
		Title: "taint " + node + " so that no new pod is scheduled there"}
}

// Open reverts Shut.
func Open(node string) step.Action {
	return step.Action{Do: step.Untaint{NodeName: node, Taint: repelling()}, Title: "remove the taint from " + node}
}

// Evict evicts the pods of a node that have an address in a range of a network.
func Evict(node, network string, cidrs []string, pods int) step.Action {
	return step.Action{
		Do:      step.Evict{Pods: step.PodSet{Node: node, CIDRs: cidrs}},
		Title:   fmt.Sprintf("evict the pods of %s that are on %s (%s)", node, network, strings.Join(cidrs, ", ")),
		Timeout: step.Duration(10*time.Minute + time.Duration(pods)*2*time.Minute),
	}
}

// Probe updates the measured paths to the probe pods in a set.
func Probe(title string, set step.PathSet) step.Action {
	return step.Action{Do: step.Probe{Paths: set}, Title: title, Timeout: step.Duration(2 * time.Minute)}
}

// Restart replaces the pod of a DaemonSet on a node by one of its current template.
func Restart(agent step.Ref, node string) step.Action {
	return step.Action{Do: step.Restart{Ref: agent, NodeName: node},
		Title: "restart the agent of " + Name(agent) + " on " + node, Timeout: step.Duration(5 * time.Minute)}
}

// Every means every node in a set of paths.
func Every() []string { return []string{step.EveryNode} }

// ProbePod names the probe pod of a node on a network.
func ProbePod(node, network string) step.Ref {
	return step.Ref{APIVersion: "v1", Kind: "Pod", Namespace: v1alpha1.Namespace,
		Name: manifest.ProbePodName(node, network)}
}

// RemoveProbeServices deletes the Services in front of the probe pods of a network.
func RemoveProbeServices(network string) []step.Action {
	var actions []step.Action
	for _, name := range []string{manifest.ProbeServiceName(network), manifest.ProbeNodePortName(network)} {
		actions = append(actions,
			Remove(step.Ref{APIVersion: "v1", Kind: "Service", Namespace: v1alpha1.Namespace, Name: name}))
	}
	return actions
}

// HostProber names the DaemonSet that probes from and to the addresses of nodes.
func HostProber() step.Ref {
	return step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: v1alpha1.Namespace,
		Name: manifest.HostProberName}
}

// ProbePodReady is the condition that a probe pod is ready.
func ProbePodReady(node, network string) step.Condition {
	return ProbePodIn(node, network, nil)
}

// ProbePodIn is the condition that a probe pod is ready with an address of its network, because a node's files may
// select another network.
func ProbePodIn(node, network string, cidrs []string) step.Condition {
	return step.Condition{Is: step.PodReady{Node: node, Namespace: v1alpha1.Namespace, CIDRs: cidrs,
		Selector: v1alpha1.LabelProbe + "=" + network + "," + manifest.LabelNode + "=" + manifest.NodeValue(node)}}
}

// Backwards makes actions that delete applied objects in reverse order.
func Backwards(objects []unstructured.Unstructured) []step.Action {
	var actions []step.Action
	for i := len(objects) - 1; i >= 0; i-- {
		actions = append(actions, Remove(step.RefOf(&objects[i])))
	}
	return actions
}
