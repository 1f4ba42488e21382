package step

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestWrites: each object once, with what its undo writes, and without nodes, pods and Theseus' own objects.
func TestWrites(t *testing.T) {
	object := func(apiVersion, kind, namespace, name, label string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"name": name, "namespace": namespace, "labels": map[string]any{label: "x"}}}}
	}
	ref := func(apiVersion, kind, namespace, name string) *Ref { return &Ref{apiVersion, kind, namespace, name} }
	steps := []Step{
		{Actions: []Action{
			{Do: Apply{Object: object("apps/v1", "DaemonSet", "net", "new", "a")}},
			{Do: Apply{Object: object("rbac.authorization.k8s.io/v1", "ClusterRole", "",
				"mine", "theseus.dev/managed")}},
			{Do: Apply{Object: object("apps/v1", "DaemonSet", "theseus-system", "agent", "a")}},
			{Do: Patch{Ref: *ref("v1", "Node", "", "node-1")}},
			{Do: Patch{Ref: *ref("v1", "Pod", "net", "p")}},
			{Do: Restart{Ref: *ref("apps/v1", "DaemonSet", "net", "restarted")}},
		}},
		{Actions: []Action{{Do: Patch{Ref: *ref("apps/v1", "DaemonSet", "net", "old")}}},
			Undo: []Action{{Do: Patch{Ref: *ref("v1", "ConfigMap", "net", "undone")}}}},
		{Actions: []Action{{Do: Delete{Ref: *ref("apps/v1", "DaemonSet", "net", "old")}}, {Do: Delete{
			Ref: *ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "migrations.theseus.dev")}}}},
	}
	var got []string
	for _, w := range Writes(steps) {
		got = append(got, fmt.Sprint(w, " ", w.Deletes))
	}
	if diff := cmp.Diff([]string{"DaemonSet/net/new false", "DaemonSet/net/old true", "ConfigMap/net/undone false"},
		got); diff != "" {
		t.Error(diff)
	}
}
