package planning

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestEarlierUnreadable: a plan is made without earlier runs that cannot be read, and says so of the newest alone. Runs
// that have not ended are not read.
func TestEarlierUnreadable(t *testing.T) {
	migration := func(name, phase string, spec map[string]any) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "Migration",
			"metadata": map[string]any{"name": name, "namespace": v1alpha1.Namespace}, "spec": spec,
			"status": map[string]any{"phase": phase}}}
	}
	version := schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	lists := map[schema.GroupVersionResource]string{
		version.WithResource("migrations"):   "MigrationList",
		version.WithResource("planpages"):    "PlanPageList",
		version.WithResource("journalpages"): "JournalPageList",
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists,
		migration("damaged", "done", map[string]any{"planGzip": "bm90IGd6aXA="}),
		migration("without-pages", "rolled-back", map[string]any{"planPages": []any{"without-pages-0001"}}),
		migration("under-way", "running", map[string]any{"planGzip": "bm90IGd6aXA="}))
	var told []string
	tell := func(text string) { told = append(told, text) }
	if learnt := earlier(t.Context(), client, "here", "v1", tell); learnt != nil {
		t.Errorf("learnt from %v", learnt.Runs)
	}
	slices.Sort(told)
	if len(told) != 2 || !strings.HasPrefix(told[0], "note: the estimate does not use the earlier run damaged: ") ||
		!strings.HasPrefix(told[1], "note: the estimate does not use the earlier run without-pages: ") {
		t.Errorf("told %q", told)
	}
	for i := range 2 * mostRead {
		one := migration("m"+string(rune('a'+i)), "done", nil).(*unstructured.Unstructured)
		if err := client.Tracker().Create(version.WithResource("migrations"), one, v1alpha1.Namespace,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if told = nil; earlier(t.Context(), client, "here", "v1", tell) != nil || len(told) != mostRead {
		t.Errorf("told %q", told)
	}
	client.PrependReactor("list", "migrations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("not today\x1b[2J")
	})
	if told = nil; earlier(t.Context(), client, "here", "v1", tell) != nil || len(told) != 1 ||
		!strings.HasPrefix(told[0], "note: the estimate does not use earlier runs of this cluster: ") ||
		strings.Contains(told[0], "\x1b") {
		t.Errorf("told %q", told)
	}
}
