package manifest

import "github.com/theseus-cni/theseus/api/v1alpha1"

// limitWindows makes the API server refuse windows that package window cannot read. It does not know which time zones
// there are: a controller with newer data may know more than the API server.
func limitWindows(schema map[string]any) {
	spec := schema["properties"].(map[string]any)["spec"].(map[string]any)["properties"].(map[string]any)
	windows := spec["windows"].(map[string]any)
	windows["maxItems"] = int64(v1alpha1.MaxWindows)
	one := windows["items"].(map[string]any)
	one["required"] = []any{"from", "to", "timeZone"}
	one["x-kubernetes-validations"] = []any{map[string]any{"rule": "self.from != self.to",
		"message": "the window opens and closes at the same time; a whole day is from 00:00 to 24:00"}}
	of := one["properties"].(map[string]any)
	days := of["days"].(map[string]any)
	days["maxItems"] = int64(7)
	days["items"].(map[string]any)["enum"] = []any{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}
	// without a length, the rule would cost the API server too much
	limit := func(field string, length int64, pattern string) {
		text := of[field].(map[string]any)
		text["maxLength"], text["pattern"] = length, pattern
	}
	limit("from", 5, `^([01][0-9]|2[0-3]):[0-5][0-9]$`)
	limit("to", 5, `^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`)
	limit("timeZone", 64, `^[A-Za-z][A-Za-z0-9_+/-]*$`)
}
