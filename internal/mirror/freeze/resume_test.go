package freeze

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// suspended is a GitOps object that stands still, with a note about what it was.
func suspended(note string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
		"metadata": map[string]any{"name": "shop", "resourceVersion": "7",
			"annotations": map[string]any{BeforeAnnotation: note}},
	}}
}

// TestResumeForeignNote: a note that somebody else wrote makes Theseus change no other field.
func TestResumeForeignNote(t *testing.T) {
	for _, note := range []string{`{"path":["spec","path"],"value":"./evil"}`,
		`{"path":["metadata","x"]}`, `{"path":["spec"]}`, `{}`, `[`} {
		if patch, err := Resume(suspended(note)); err == nil {
			t.Errorf("%s became %s", note, patch)
		}
	}
	if patch, err := Resume(suspended(`{"path":["spec","suspend"],"value":false}`)); err != nil || patch == nil {
		t.Errorf("%s, %v", patch, err)
	}
}

// FuzzResume: whatever a note says, the patch keeps to the one field, and to the version of the object that was read.
func FuzzResume(f *testing.F) {
	f.Add(`{"path":["spec","suspend"],"value":false}`)
	f.Add(`{"path":["metadata","x"],"value":{"a":[1]}}`)
	f.Fuzz(func(t *testing.T, note string) {
		patch, err := Resume(suspended(note))
		if err != nil || patch == nil {
			return
		}
		var changed map[string]map[string]any
		if err := json.Unmarshal(patch, &changed); err != nil {
			t.Fatal(err)
		}
		_, suspends := changed["spec"]["suspend"]
		if len(changed) != 2 || len(changed["spec"]) != 1 || !suspends ||
			changed["metadata"]["resourceVersion"] != "7" {
			t.Errorf("%q became %s", note, patch)
		}
	})
}
