package plan_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// TestInCluster puts plans for many nodes into a real etcd behind a real API server and takes them from there, with
// what that takes; when a Migration is deleted, the real garbage collector removes its pages.
func TestInCluster(t *testing.T) {
	kube := clustertest.Program(t, "plans for 5,000 nodes in a real API server")
	client := controlPlane(t, kube)
	for _, change := range []struct {
		name string
		make func(testing.TB) *request
	}{
		{"recreate", flannelToCalico}, {"adopt", adoption}, {"surge", surging},
		{"to nftables", toNFTables}, {"upgrade", newer},
	} {
		for _, nodes := range []int{mostNodes / 10, mostNodes} {
			r := change.make(t)
			grow(r, nodes, 20)
			if r.change.PodCIDR != "" {
				r.change.PodCIDR = "11.0.0.0/8"
			}
			p := mustMake(t, r)
			begun := time.Now()
			if err := journal.Create(t.Context(), client, p); err != nil {
				t.Fatal(err)
			}
			created := time.Since(begun)
			begun = time.Now()
			got, migration, err := journal.Load(t.Context(), client, p.Name)
			if err != nil {
				t.Fatal(err)
			}
			loaded := time.Since(begun)
			if plan.Hash(got) != p.Hash {
				t.Errorf("%s, %d nodes: another plan came back", change.name, nodes)
			}
			pages := pagesOf(t, client)
			bytes := 0
			for _, page := range pages {
				data, _, _ := unstructured.NestedString(page.Object, "data")
				bytes += len(data) * 3 / 4
			}
			if len(pages) != len(migration.Spec.PlanPages) {
				t.Errorf("%s, %d nodes: %d pages, of which the Migration names %d",
					change.name, nodes, len(pages), len(migration.Spec.PlanPages))
			}
			t.Logf("%s, %d nodes, %d steps: %.2f MB in %d pages, written in %.1f s, read in %.1f s",
				change.name, nodes, len(p.Steps), float64(bytes)/1e6, len(pages), created.Seconds(), loaded.Seconds())
			if err := client.Resource(ownKind("Migration")).Namespace(v1alpha1.Namespace).Delete(t.Context(), p.Name,
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			awaited(t, "its pages go with the Migration", func() bool { return len(pagesOf(t, client)) == 0 })
		}
	}
}

func ownKind(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: manifest.Plural(kind)}
}

func pagesOf(t *testing.T, client dynamic.Interface) []unstructured.Unstructured {
	t.Helper()
	list, err := client.Resource(ownKind("PlanPage")).Namespace(v1alpha1.Namespace).List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// awaited waits for a condition; its bound only ends a test that has failed.
func awaited(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 5 min: %s", what)
		}
	}
}

// controlPlane starts a control plane with the garbage collector and Theseus' definitions, until the test ends.
func controlPlane(t *testing.T, kube string) dynamic.Interface {
	t.Helper()
	config := clustertest.ControlPlane(t, kube, clustertest.Options{Collects: true})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	awaited(t, "Theseus' definitions serve", func() bool { return established(t.Context(), client) })
	return client
}

// established makes Theseus' namespace and definitions, and says whether they serve.
func established(ctx context.Context, client dynamic.Interface) bool {
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	_, _ = client.Resource(namespaces).Create(ctx, manifest.Namespace(), metav1.CreateOptions{})
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	for _, crd := range manifest.CRDs() {
		_, _ = client.Resource(definitions).Create(ctx, &crd, metav1.CreateOptions{})
	}
	for _, kind := range []string{"Migration", "PlanPage"} {
		if _, err := client.Resource(ownKind(kind)).Namespace(v1alpha1.Namespace).List(ctx,
			metav1.ListOptions{}); err != nil {
			return false
		}
	}
	return true
}
