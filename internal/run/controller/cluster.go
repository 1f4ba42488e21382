package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// callTimeout bounds a call to the API server.
const callTimeout = 10 * time.Second

func resource(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: manifest.Plural(kind)}
}

// listApprovals reads all approvals, the oldest first. It is never nil without an error, and the error is NotFound if
// the CRDs are of an older version, without approvals.
func listApprovals(ctx context.Context, client dynamic.Interface) ([]v1alpha1.Approval, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all := []v1alpha1.Approval{}
	list, err := client.Resource(resource("Approval")).Namespace(v1alpha1.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing approvals: %w", err)
	}
	for _, item := range list.Items {
		var one v1alpha1.Approval
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &one); err != nil {
			return nil, fmt.Errorf("approval %s: %w", item.GetName(), err)
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b v1alpha1.Approval) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return all, nil
}

// write writes conditions and the count of approvals into the status of a Migration, if they change it, and also what
// its spec asks for, if given. The Migration is updated as well. Events tell what is new in the conditions.
func (c *Controller) write(ctx context.Context, m *v1alpha1.Migration, conditions Conditions,
	observed *v1alpha1.Observed) error {
	all, changed := conditions.onto(m.Status.Conditions, time.Now())
	seen := m.Status.Observed
	if observed != nil && (seen == nil || *seen != *observed) {
		seen, changed = observed, true
	}
	count := m.Status.Approval
	if conditions.Count != nil && !equality.Semantic.DeepEqual(count, conditions.Count) {
		count, changed = conditions.Count, changed || !c.drops
	}
	if !changed {
		return nil
	}
	status := map[string]any{"conditions": all}
	if count != nil {
		status["approval"] = count
	}
	if seen != nil { // with empty values, which omitempty would leave out and a merge would keep
		status["observed"] = map[string]any{"attempt": seen.Attempt, "desire": string(seen.Desire)}
	}
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	written, err := c.Client.Dynamic.Resource(resource("Migration")).Namespace(v1alpha1.Namespace).Patch(ctx,
		m.Name, types.MergePatchType, data,
		metav1.PatchOptions{FieldManager: manifest.ControllerName})
	if err != nil {
		return fmt.Errorf("writing the conditions of %s: %w", m.Name, err)
	}
	if count != nil {
		_, kept, _ := unstructured.NestedMap(written.Object, "status", "approval")
		c.drops = !kept
	}
	before := m.Status.Conditions
	m.Status.Conditions, m.Status.Observed, m.Status.Approval = all, seen, count
	for _, n := range notices(before, all) {
		c.event(m, n.kind, n.reason, n.message)
	}
	return nil
}
