package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/node"
	"github.com/theseus-cni/theseus/internal/outage"
)

// Object is a Node in the API; it implements node.Object.
type Object struct {
	Name   string
	Client dynamic.Interface
}

func (o Object) nodes() dynamic.ResourceInterface {
	return o.Client.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
}

func (o Object) get(ctx context.Context) (*corev1.Node, error) {
	var object *unstructured.Unstructured
	err := outage.Retry(ctx, outage.Limits{Away: outage.Bound, Refused: outage.Bound}, nil, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		object, err = o.nodes().Get(ctx, o.Name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read Node %s: %w", o.Name, err)
	}
	var found corev1.Node
	return &found, decode(object, &found)
}

// Keys reads the names of the Node's annotations, labels and taints.
func (o Object) Keys(ctx context.Context) (node.Keys, error) {
	found, err := o.get(ctx)
	if err != nil {
		return node.Keys{}, err
	}
	var keys node.Keys
	for name := range found.Annotations {
		keys.Annotations = append(keys.Annotations, name)
	}
	for name := range found.Labels {
		keys.Labels = append(keys.Labels, name)
	}
	for _, taint := range found.Spec.Taints {
		keys.Taints = append(keys.Taints, taint.Key)
	}
	for _, condition := range found.Status.Conditions {
		if condition.Type == corev1.NodeNetworkUnavailable && condition.Status == corev1.ConditionTrue {
			keys.Unavailable = append(keys.Unavailable, condition.Reason)
		}
	}
	return keys, nil
}

// Remove takes keys off the Node, and marks its network as available. Taints are a list that others write too, so the patch holds
// only for the version that was read, and is made anew when somebody was faster.
func (o Object) Remove(ctx context.Context, gone node.Keys) error {
	if len(gone.Unavailable) > 0 {
		if err := o.available(ctx); err != nil {
			return err
		}
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := o.get(ctx)
		if err != nil {
			return err
		}
		patch, err := json.Marshal(without(found, gone))
		if err != nil {
			return fmt.Errorf("change Node %s: %w", o.Name, err)
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_, err = o.nodes().Patch(call, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manifest.AgentName})
		return err
	})
}

// available marks the node's network as available, of which the taint that keeps new pods away follows.
func (o Object) available(ctx context.Context) error {
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now,
		Reason: "OtherNetworkIsUp", Message: "The agent that said otherwise is gone, and another network serves this node"}}}})
	if err != nil {
		return fmt.Errorf("change Node %s: %w", o.Name, err)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = o.nodes().Patch(call, o.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: manifest.AgentName}, "status")
	return err
}

// without is the merge patch that removes keys from a Node.
func without(found *corev1.Node, gone node.Keys) map[string]any {
	null := func(names []string) map[string]any {
		nulls := map[string]any{}
		for _, name := range names {
			nulls[name] = nil
		}
		return nulls
	}
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": found.ResourceVersion, "annotations": null(gone.Annotations), "labels": null(gone.Labels)}}
	if len(gone.Taints) > 0 {
		kept := slices.DeleteFunc(slices.Clone(found.Spec.Taints), func(taint corev1.Taint) bool {
			return slices.Contains(gone.Taints, taint.Key)
		})
		patch["spec"] = map[string]any{"taints": kept}
	}
	return patch
}
