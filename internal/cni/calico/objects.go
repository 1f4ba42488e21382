package calico

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// order is the order of application; kinds that are not in it come before the workloads.
var order = map[string]int{
	"Namespace": 0, "ServiceAccount": 1, "ConfigMap": 2, "Secret": 2,
	"ClusterRole": 3, "Role": 3, "ClusterRoleBinding": 4, "RoleBinding": 4,
	"DaemonSet": 8, "Deployment": 9,
}

func sortForApply(objects []unstructured.Unstructured) {
	rank := func(object unstructured.Unstructured) int {
		if n, ok := order[object.GetKind()]; ok {
			return n
		}
		return 6
	}
	slices.SortStableFunc(objects, func(a, b unstructured.Unstructured) int { return rank(a) - rank(b) })
}

// containersOf returns the containers of a workload as they are in it: a change to one changes the workload.
func containersOf(workload *unstructured.Unstructured, field string) []map[string]any {
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

func findContainer(workload *unstructured.Unstructured, field, name string) map[string]any {
	for _, container := range containersOf(workload, field) {
		if container["name"] == name {
			return container
		}
	}
	return nil
}

func envOf(container map[string]any) []any {
	list, _ := container["env"].([]any)
	return list
}

func findEnv(container map[string]any, name string) map[string]any {
	for _, item := range envOf(container) {
		if variable, ok := item.(map[string]any); ok && variable["name"] == name {
			return variable
		}
	}
	return nil
}

func hasEnv(container map[string]any, name string) bool { return findEnv(container, name) != nil }

// setEnv gives a variable a plain value, in its place when it is there.
func setEnv(container map[string]any, name, value string) {
	if variable := findEnv(container, name); variable != nil {
		delete(variable, "valueFrom")
		variable["value"] = value
		return
	}
	container["env"] = append(envOf(container), map[string]any{"name": name, "value": value})
}

// env reads a variable's value, through the ConfigMap where it comes from there.
func (m *manifest) env(container map[string]any, name string) string {
	variable := findEnv(container, name)
	if variable == nil {
		return ""
	}
	if value, ok := variable["value"].(string); ok {
		return value
	}
	from, _, _ := unstructured.NestedString(variable, "valueFrom", "configMapKeyRef", "name")
	key, _, _ := unstructured.NestedString(variable, "valueFrom", "configMapKeyRef", "key")
	if m.config == nil || from != m.config.GetName() {
		return ""
	}
	return m.setting(key)
}

func (m *manifest) setting(key string) string {
	if m.config == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(m.config.Object, "data", key)
	return value
}

func (m *manifest) hasSetting(key string) bool {
	if m.config == nil {
		return false
	}
	_, ok, _ := unstructured.NestedString(m.config.Object, "data", key)
	return ok
}

func (m *manifest) set(key, value string) {
	// The field is a map of strings, or the manifest would not have been decoded.
	_ = unstructured.SetNestedField(m.config.Object, value, "data", key)
}
