package rehearse

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/mirror/scratch"
)

// migrations is a cluster without migrations.
func migrations() *dynamicfake.FakeDynamicClient {
	lists := map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"Migration", "PlanPage", "JournalPage"} {
		lists[schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
			Resource: manifest.Plural(kind)}] = kind + "List"
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
}

// TestKept: the copy is not removed under a migration that has not ended, neither at the end of a rehearsal nor by
// remove, and the user is told how to remove it later.
func TestKept(t *testing.T) {
	dynamic := migrations()
	migration := manifest.Namespace().DeepCopy()
	migration.SetAPIVersion(v1alpha1.APIVersion)
	migration.SetKind("Migration")
	migration.SetName("paused")
	migration.SetNamespace(v1alpha1.Namespace)
	if err := dynamic.Tracker().Create(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: "migrations"}, migration, v1alpha1.Namespace); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{Out: &out, Err: &out}, Context: new("scratch")}
	s := &scratch.Scratch{Client: &kube.Client{Typed: fake.NewClientset(), Dynamic: dynamic}, Note: func(string) {}}
	interrupted := errors.New("interrupted")
	kept, err := (&options{}).removed(t.Context(), a, s, interrupted)
	if !kept || err != interrupted || !strings.Contains(out.String(),
		"the copy stays: another migration has not ended, and no process runs it: paused") ||
		!strings.Contains(out.String(), "theseus rehearse remove --context scratch removes it") {
		t.Errorf("%v, %v: %s", kept, err, out.String())
	}
	if err := remove(t.Context(), a, s, true); err == nil || !strings.Contains(err.Error(), "paused") {
		t.Errorf("remove: %v", err)
	}
	for _, action := range dynamic.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "get" {
			t.Errorf("%s %s", verb, action.GetResource().Resource)
		}
	}
}
