package cni

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// applyOrder is the order of application; kinds that are not listed come before the workloads.
var applyOrder = map[string]int{
	"Namespace": 0, "ServiceAccount": 1, "ConfigMap": 2, "Secret": 2,
	"ClusterRole": 3, "Role": 3, "ClusterRoleBinding": 4, "RoleBinding": 4,
	"DaemonSet": 8, "Deployment": 9,
}

// SortForApply sorts a manifest for application: dependencies first.
func SortForApply(objects []unstructured.Unstructured) {
	rank := func(object unstructured.Unstructured) int {
		if n, ok := applyOrder[object.GetKind()]; ok {
			return n
		}
		return 6
	}
	slices.SortStableFunc(objects, func(a, b unstructured.Unstructured) int { return rank(a) - rank(b) })
}

// Label marks objects as made by a change.
func Label(objects []unstructured.Unstructured) {
	for i := range objects {
		labels := objects[i].GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[v1alpha1.LabelManaged] = "true"
		objects[i].SetLabels(labels)
	}
}

// ContainersOf returns the containers of a workload without copying: changing one changes the workload.
func ContainersOf(workload *unstructured.Unstructured, field string) []map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(workload.Object, "spec", "template", "spec", field)
	items, _ := list.([]any)
	var found []map[string]any
	for _, item := range items {
		if container, ok := item.(map[string]any); ok {
			found = append(found, container)
		}
	}
	return found
}

// FindContainer returns a container by name; nil if there is none.
func FindContainer(workload *unstructured.Unstructured, field, name string) map[string]any {
	for _, container := range ContainersOf(workload, field) {
		if container["name"] == name {
			return container
		}
	}
	return nil
}
