package calico

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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

// setEnv sets a variable to a plain value, in place if it exists.
func setEnv(container map[string]any, name, value string) {
	if variable := findEnv(container, name); variable != nil {
		delete(variable, "valueFrom")
		variable["value"] = value
		return
	}
	container["env"] = append(envOf(container), map[string]any{"name": name, "value": value})
}

// env returns a variable's value, from the ConfigMap if it refers to one.
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
	// The field is a map of strings; otherwise decoding the manifest would have failed.
	_ = unstructured.SetNestedField(m.config.Object, value, "data", key)
}
