package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// TestCurrent: an approved plan does not begin after its Change was edited, deleted, or replaced by another of the same name.
func TestCurrent(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "Change",
		"metadata": map[string]any{"name": "a", "uid": "u", "generation": int64(3)}}}
	c := &Controller{Client: &kube.Client{Dynamic: fake.NewSimpleDynamicClient(runtime.NewScheme(), object)}}
	for origin, want := range map[string]bool{
		"":                                      true,
		`{"name":"a","uid":"u","generation":3}`: true,
		`{"name":"a","uid":"u","generation":2}`: false,
		`{"name":"a","uid":"other","generation":3}`: false,
		`{"name":"b","uid":"u","generation":3}`:     false,
	} {
		m := &v1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationChange: origin}}}
		if got, err := c.current(t.Context(), m); err != nil || got != want {
			t.Errorf("%q: %v, %v", origin, got, err)
		}
	}
}
