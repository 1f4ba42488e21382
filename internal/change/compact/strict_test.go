package compact

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestStrict: the faster decoder reads what encoding/json does, and the two together refuse what it refuses. A plan's
// hash is about what was read.
func TestStrict(t *testing.T) {
	values := []string{`null`, `true`, `0`, `-0`, `1`, `1.0`, `1e2`, `9223372036854775808`, `""`, `"a"`, `"\u0061"`,
		`"\ud800"`, "\"\xff\"", `"1m30s"`, `"1m30s\u0020"`, `{}`, `[]`, `[null]`, `["a",null]`, `[["a"],"b"]`,
		`{"a":null}`, `{"a":1,"a":2}`, `{"A":1,"a":2}`, ` { "kind" : "Pod" , "n" : 1.0 } `,
		`{"apiVersion":"v1","kind":"Pod"}`}
	compared := 0
	for _, into := range []any{step.Step{}, step.Action{}, step.Condition{}, shape{}, each{}} {
		kind := reflect.TypeOf(into)
		for _, name := range fieldNames(kind) {
			for _, value := range values {
				for _, text := range []string{
					`{"` + name + `":` + value + `}`, `{"` + name + `":` + value + `,"` + name + `":` + value + `}`,
					`{"unknown":1,"` + name + `":` + value + `}`,
					`{"` + string(bytes.ToUpper([]byte(name))) + `":` + value + `}`, `{"` + name + `":` + value + `} x`,
					`{"` + name + `":` + value + `} {}`,
				} {
					want, got := reflect.New(kind), reflect.New(kind)
					decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
					decoder.DisallowUnknownFields()
					wantErr := decoder.Decode(want.Interface())
					err := strictly([]byte(text), got.Interface())
					if (err == nil) != (wantErr == nil) ||
						err == nil && !reflect.DeepEqual(got.Interface(), want.Interface()) {
						t.Errorf("%s from %s\nis %+v, %v\nand by encoding/json %+v, %v",
							kind, text, got.Elem(), err, want.Elem(), wantErr)
					}
					compared++
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d texts were compared", compared)
	}
}

// fieldNames are the names of a type's fields in JSON.
func fieldNames(kind reflect.Type) (all []string) {
	if kind == reflect.TypeFor[step.Action]() {
		return []string{"id", "op", "title", "object", "ref", "patch", "pods", "nodeName", "verb", "args", "condition",
			"paths", "taint", "beside", "leaveEnding", "anew", "mark", "timeout"}
	}
	if kind == reflect.TypeFor[step.Condition]() {
		return []string{"kind", "ref", "node", "selector", "namespace", "cidrs", "nodes", "says", "version", "reports",
			"fields", "leaveEnding", "leaveDaemons"}
	}
	for i := range kind.NumField() {
		all = append(all, jsonName(kind.Field(i)))
	}
	return all
}

// jsonName is a field's name in JSON.
func jsonName(field reflect.StructField) string {
	name, _, _ := bytes.Cut([]byte(field.Tag.Get("json")), []byte(","))
	if len(name) == 0 {
		return field.Name
	}
	return string(name)
}

func strictly(data []byte, into any) error {
	switch into := into.(type) {
	case *step.Step:
		return strict(data, into)
	case *step.Action:
		return strict(data, into)
	case *step.Condition:
		return strict(data, into)
	case *shape:
		return strict(data, into)
	case *each:
		return strict(data, into)
	}
	panic("a type that this test does not know")
}
