package controller

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestRemovable: who uninstalls the controller is told to delete a Change whose plan has not begun, and else how to end
// the run.
func TestRemovable(t *testing.T) {
	for phase, hint := range map[string]string{"": "kubectl delete change a", "running": "theseus rollback m"} {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion,
			"kind": "Migration", "metadata": map[string]any{"name": "m", "namespace": v1alpha1.Namespace,
				"annotations": map[string]any{v1alpha1.AnnotationChange: `{"name":"a","uid":"u","generation":1}`}},
			"spec": map[string]any{"inCluster": true}, "status": map[string]any{"phase": phase}}}
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{resource("Migration"): "MigrationList"}, object)
		err := Removable(t.Context(), &kube.Client{Dynamic: client})
		if err == nil || !strings.Contains(engine.HintOf(err), hint) {
			t.Errorf("phase %q: %v, hint %q", phase, err, engine.HintOf(err))
		}
	}
}

// TestCurrent: an approved plan does not begin after its Change was edited, deleted, or replaced by another of the same
// name.
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
		m := &v1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationChange: origin}}}
		why, err := c.outdated(t.Context(), m)
		if err != nil || (why == "") != want {
			t.Errorf("%q: %q, %v", origin, why, err)
		}
	}
}

// TestEditedWithoutPlanning: with planning turned off, nobody withdraws the plan of a Change that was edited: the
// condition says so, and what to do.
func TestEditedWithoutPlanning(t *testing.T) {
	c, p, m := entered(t)
	m.Annotations = map[string]string{v1alpha1.AnnotationChange: `{"name":"a","uid":"u","generation":2}`}
	change := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "Change",
		"metadata": map[string]any{"name": "a", "uid": "u", "generation": int64(3)}}}
	if _, err := c.Client.Dynamic.Resource(resource("Change")).Create(t.Context(), change,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	told, _ := c.told(t.Context(), m, viewOf(new([]string)), &halt{}, engine.Outcome{}, c.admit(t.Context(), m, p, nil))
	if told.Degraded.Reason != v1alpha1.ReasonChangeEdited || !strings.Contains(told.Degraded.Message,
		"the Change a was edited") || !strings.Contains(told.Degraded.Message, "planning.enabled") {
		t.Errorf("%+v", told)
	}
	c.Planning = true
	if err := c.admit(t.Context(), m, p, nil); !errors.Is(err, errSettled) {
		t.Errorf("with planning: %v", err)
	}
}
