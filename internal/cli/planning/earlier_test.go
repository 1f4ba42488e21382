package planning

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// migration is a Migration in the cluster.
func migration(name, phase string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "Migration",
		"metadata": map[string]any{"name": name, "namespace": v1alpha1.Namespace}, "spec": spec,
		"status": map[string]any{"phase": phase}}}
}

// made is a cluster with these Migrations.
func made(migrations ...runtime.Object) *fake.FakeDynamicClient {
	version := schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		version.WithResource("migrations"):   "MigrationList",
		version.WithResource("planpages"):    "PlanPageList",
		version.WithResource("journalpages"): "JournalPageList",
	}, migrations...)
}

// packed is the spec of a Migration with this plan.
func packed(t *testing.T, text string) map[string]any {
	t.Helper()
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	if _, err := zip.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"planGzip": base64.StdEncoding.EncodeToString(zipped.Bytes())}
}

// TestEarlierOthers: runs of other versions are named in one note. Of them, and of runs of other clusters, neither the
// plan is proven nor the journal read; a plan that is neither is proven.
func TestEarlierOthers(t *testing.T) {
	client := made(migration("a", "done", packed(t, `{"theseus":"v0","cluster":{"uid":"here"}}`)),
		migration("b", "done", packed(t, "theseus: v0")),
		migration("c", "done", packed(t, `{"theseus":"v1","cluster":{"uid":"there"}}`)),
		migration("d", "done", packed(t, `{"theseus":"v1","cluster":{"uid":"here"}}`)))
	client.PrependReactor("list", "journalpages", func(clienttesting.Action) (bool, runtime.Object, error) {
		t.Error("a journal is read")
		return false, nil, nil
	})
	var told []string
	tell := func(text string) { told = append(told, text) }
	if learnt := earlier(t.Context(), client, "here", "v1", tell); learnt != nil {
		t.Errorf("learnt from %v", learnt.Runs)
	}
	const note = "note: the estimate does not use "
	if len(told) != 3 || told[0] != note+"the earlier run c: it is a run of another cluster" ||
		!strings.HasPrefix(told[1], note+"the earlier run d: the plan of migration d") ||
		told[2] != note+"earlier runs of this cluster (a, b): made by another version of Theseus" {
		t.Errorf("told %q", told)
	}
	told = nil
	earlier(t.Context(), client, "", "v1", tell)
	if !slices.Contains(told, note+"the earlier run d: it is a run of another cluster") {
		t.Errorf("a cluster without a UID: %q", told)
	}
}

// TestEarlierSlow: a plan does not wait long for earlier runs.
func TestEarlierSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := made(migration("a", "done", nil), migration("b", "done", nil), migration("c", "done", nil))
		client.PrependReactor("get", "migrations", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(9 * time.Second)
			return true, nil, context.DeadlineExceeded
		})
		var told []string
		begun := time.Now()
		earlier(t.Context(), client, "here", "v1", func(text string) { told = append(told, text) })
		if took := time.Since(begun); took > earlierWithin+10*time.Second || len(told) != 3 ||
			!strings.HasSuffix(told[2], "more earlier runs of this cluster: not read within 20s") {
			t.Errorf("after %s it told %q", took, told)
		}
	})
}

// TestEarlierUnreadable: a plan is made without earlier runs that cannot be read, and says so of the newest alone. Runs
// that have not ended are not read.
func TestEarlierUnreadable(t *testing.T) {
	migrations := schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "migrations"}
	client := made(
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
		one := migration("m"+string(rune('a'+i)), "done", nil)
		if err := client.Tracker().Create(migrations, one, v1alpha1.Namespace,
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
