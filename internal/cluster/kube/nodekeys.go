package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/internal/step"
)

// keysWait is how long after their removal keys may return to a Node object, and are removed again: a terminating agent
// of the network may write them once more. The time that requests take does not count: a slow API server is no writer.
const keysWait = 20 * time.Second

// nodeVerb runs a verb on a node. Its agent does the work, except for the keys on the Node object that a residue names.
func (a *Actor) nodeVerb(ctx context.Context, id string, do step.Node) (json.RawMessage, error) {
	if !step.Takes[step.Residue](do.Verb) {
		return a.runTask(ctx, id, do)
	}
	var residue step.Residue
	if err := json.Unmarshal(do.Args, &residue); err != nil {
		return nil, fmt.Errorf("action %s: %w", id, err)
	}
	host, object := residue.Split()
	if object.Count() == 0 {
		return a.runTask(ctx, id, do)
	}
	do.Args = jsonOf(host)
	answer, err := a.runTask(ctx, id, do)
	if err != nil || answer == nil { // the node is gone
		return nil, err
	}
	var inventory step.Inventory
	if err := json.Unmarshal(answer, &inventory); err != nil {
		return nil, fmt.Errorf("the answer of the agent of %s: %w", do.NodeName, err)
	}
	found, err := a.keysLeft(ctx, do, object)
	if err != nil {
		return nil, err
	}
	inventory.Found.Annotations, inventory.Found.NodeLabels = found.Annotations, found.NodeLabels
	inventory.Found.Taints, inventory.Found.Farewells = found.Taints, found.Farewells
	return jsonOf(inventory), nil
}

// keysLeft finds a residue on the Node object, and removes it if requested.
func (a *Actor) keysLeft(ctx context.Context, do step.Node, residue step.Residue) (step.Residue, error) {
	var removed time.Time // when the first removal was done
	for {
		var found step.Residue
		looked := a.Clock.Now()
		err := a.persist(ctx, func() (err error) {
			node, err := a.Typed.CoreV1().Nodes().Get(ctx, do.NodeName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if found = keysOn(node, residue); do.Verb == step.VerbInventory || found.Count() == 0 {
				return nil
			}
			return a.removeKeys(ctx, node, found)
		})
		switch {
		case apierrors.IsNotFound(err):
			return step.Residue{}, nil // the node left the cluster, and its keys with it
		case err != nil || do.Verb == step.VerbInventory || found.Count() == 0:
			return found, err
		case removed.IsZero():
			removed = a.Clock.Now()
		case looked.After(removed.Add(keysWait)):
			return found, fmt.Errorf("another client changes Node %s again: %s", do.NodeName,
				strings.Join(slices.Concat(found.Annotations, found.NodeLabels, found.Taints, found.Farewells), ", "))
		}
		if err := a.Clock.Sleep(ctx, poll); err != nil {
			return found, err
		}
	}
}

// keysOn returns the part of a residue that is on a Node object.
func keysOn(node *corev1.Node, residue step.Residue) step.Residue {
	var taints, farewells []string
	for _, taint := range node.Spec.Taints {
		taints = append(taints, taint.Key)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeNetworkUnavailable && condition.Status == corev1.ConditionTrue {
			farewells = append(farewells, condition.Reason)
		}
	}
	return step.Residue{
		Annotations: step.Pick(residue.Annotations, keys(node.Annotations)),
		NodeLabels:  step.Pick(residue.NodeLabels, keys(node.Labels)),
		Taints:      step.Pick(residue.Taints, taints),
		Farewells:   step.Pick(residue.Farewells, farewells),
	}
}

func keys(of map[string]string) []string {
	var all []string
	for key := range of {
		all = append(all, key)
	}
	return all
}

// removeKeys removes the found keys from a Node object, and marks its network as available; Kubernetes then removes the
// taint that repels new pods. Other writers also change the list of taints, so the patch only applies to the version
// that was read.
func (a *Actor) removeKeys(ctx context.Context, node *corev1.Node, found step.Residue) error {
	nodes := a.Typed.CoreV1().Nodes()
	if len(found.Farewells) > 0 {
		now := metav1.Now()
		condition := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable,
			Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now, Reason: "OtherNetworkIsUp",
			Message: "Its agent is gone, and another network serves this node"}
		patch := jsonOf(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}})
		if _, err := nodes.Patch(ctx, node.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{FieldManager: FieldManager}, "status"); err != nil {
			return err
		}
		found.Farewells = nil
		if found.Count() == 0 {
			return nil
		}
		return apierrors.NewConflict(corev1.Resource("nodes"), node.Name, nil) // read again: the version has changed
	}
	_, err := nodes.Patch(ctx, node.Name, types.MergePatchType, jsonOf(without(node, found)),
		metav1.PatchOptions{FieldManager: FieldManager})
	return err
}

// without returns the merge patch that removes keys from a Node.
func without(node *corev1.Node, gone step.Residue) map[string]any {
	null := func(names []string) map[string]any {
		nulls := map[string]any{}
		for _, name := range names {
			nulls[name] = nil
		}
		return nulls
	}
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": node.ResourceVersion, "annotations": null(gone.Annotations),
		"labels": null(gone.NodeLabels)}}
	if len(gone.Taints) > 0 {
		patch["spec"] = map[string]any{"taints": slices.DeleteFunc(slices.Clone(node.Spec.Taints),
			func(taint corev1.Taint) bool {
				return slices.Contains(gone.Taints, taint.Key)
			})}
	}
	return patch
}
