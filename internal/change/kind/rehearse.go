package kind

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Rehearse does an action on a snapshot whose Nodes and Other are copies: the objects that it changes are copied too.
func Rehearse(s *cluster.Snapshot, a *step.Action) {
	same := func(ref step.Ref) func(unstructured.Unstructured) bool {
		return func(o unstructured.Unstructured) bool { return o.GetKind() == ref.Kind && o.GetName() == ref.Name }
	}
	switch do := a.Do.(type) {
	case step.Apply:
		s.Other = append(slices.DeleteFunc(s.Other, same(step.RefOf(do.Object))), *do.Object)
	case step.Delete:
		s.Other = slices.DeleteFunc(s.Other, same(do.Ref))
	case step.Patch:
		if do.Ref.Kind == "Node" {
			for i := range s.Nodes {
				if n := &s.Nodes[i]; n.Name == do.Ref.Name {
					n.Annotations = patched(n.Annotations, do.Merge)
				}
			}
		} else if i := slices.IndexFunc(s.Other, same(do.Ref)); i >= 0 {
			s.Other[i] = withSpec(s.Other[i], do.Merge)
		}
	}
}

// patched is a copy of annotations with those of a patch.
func patched(annotations map[string]string, patch json.RawMessage) map[string]string {
	var change struct {
		Metadata struct {
			Annotations map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(patch, &change) // planners made it
	annotations = maps.Clone(annotations)
	for key, value := range change.Metadata.Annotations {
		delete(annotations, key)
		if value != nil {
			annotations[key] = *value
		}
	}
	return annotations
}

// withSpec is a copy of an object with the fields of a patch of its spec.
func withSpec(object unstructured.Unstructured, patch json.RawMessage) unstructured.Unstructured {
	var change struct {
		Spec map[string]any `json:"spec"`
	}
	_ = json.Unmarshal(patch, &change) // planners made it
	after := object.DeepCopy()
	for key, value := range change.Spec {
		_ = unstructured.SetNestedField(after.Object, value, "spec", key)
	}
	return *after
}
