package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// TestPolicy: only the two objects as this version writes them count, whatever their labels.
func TestPolicy(t *testing.T) {
	both := func(change func(policy, binding *unstructured.Unstructured)) []*unstructured.Unstructured {
		all := manifest.ApprovalPolicy()
		all[0].SetCreationTimestamp(metav1.NewTime(noon))
		all[1].SetCreationTimestamp(metav1.NewTime(noon.Add(time.Minute)))
		change(&all[0], &all[1])
		return []*unstructured.Unstructured{&all[0], &all[1]}
	}
	set := func(object *unstructured.Unstructured, value any, path ...string) {
		if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	now := metav1.NewTime(noon)
	for name, test := range map[string]struct {
		found  []*unstructured.Unstructured
		reason string
	}{
		"as written": {both(func(p, b *unstructured.Unstructured) {
			p.SetLabels(map[string]string{"helm.sh/chart": "x"})
		}), ""},
		"ignored failures": {both(func(p, b *unstructured.Unstructured) { set(p, "Ignore", "spec", "failurePolicy") }),
			v1alpha1.ReasonPolicyChanged},
		"another condition": {both(func(p, b *unstructured.Unstructured) {
			set(p, []any{map[string]any{"name": "x", "expression": "false"}}, "spec", "matchConditions")
		}), v1alpha1.ReasonPolicyChanged},
		"only a warning": {both(func(p, b *unstructured.Unstructured) {
			set(b, []any{"Warn"}, "spec", "validationActions")
		}), v1alpha1.ReasonPolicyChanged},
		"it is being deleted": {both(func(p, b *unstructured.Unstructured) { b.SetDeletionTimestamp(&now) }),
			v1alpha1.ReasonPolicyChanged},
		"no policy": {[]*unstructured.Unstructured{nil, both(func(p, b *unstructured.Unstructured) {})[1]},
			v1alpha1.ReasonPolicyMissing},
		"no binding": {[]*unstructured.Unstructured{both(func(p, b *unstructured.Unstructured) {})[0], nil},
			v1alpha1.ReasonPolicyMissing},
	} {
		got := judgePolicy(test.found)
		if got.Reason != test.reason || (got.Reason == "") != got.Since.Equal(noon.Add(time.Minute)) {
			t.Errorf("%s: %+v, want %q", name, got, test.reason)
		}
	}
}
