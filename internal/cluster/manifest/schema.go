package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// schemaOf generates the structural schema of a kind from its Go type, so that the API server does not prune any field
// of the type. The API server defines the fields of TypeMeta and ObjectMeta.
func schemaOf(object any) map[string]any {
	s := schema(reflect.TypeOf(object))
	properties := s["properties"].(map[string]any)
	properties["apiVersion"] = map[string]any{"type": "string"}
	properties["kind"] = map[string]any{"type": "string"}
	properties["metadata"] = map[string]any{"type": "object"}
	return s
}

// schema follows encoding/json. Slices, maps and pointers are nullable, because Go encodes nil ones as null; raw JSON
// may have any form. It panics on types that no kind here uses.
func schema(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[metav1.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{"x-kubernetes-preserve-unknown-fields": true}
	case reflect.TypeFor[[]byte]():
		return map[string]any{"type": "string", "format": "byte", "nullable": true}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer", "format": "int64"}
	case reflect.Float64:
		return map[string]any{"type": "number", "format": "double"}
	case reflect.Pointer:
		s := schema(t.Elem())
		s["nullable"] = true
		return s
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "nullable": true, "items": schema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "nullable": true, "additionalProperties": schema(t.Elem())}
	case reflect.Struct:
		return map[string]any{"type": "object", "properties": properties(t)}
	}
	panic(fmt.Sprintf("no schema for %s", t))
}

func properties(t reflect.Type) map[string]any {
	all := map[string]any{}
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch field.Type {
		case reflect.TypeFor[metav1.TypeMeta](), reflect.TypeFor[metav1.ObjectMeta]():
			continue
		}
		if name == "-" || options == "inline" {
			continue
		}
		all[name] = schema(field.Type)
	}
	return all
}
