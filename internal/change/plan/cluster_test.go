package plan_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// TestInCluster puts plans for many nodes into a real etcd behind a real API server and takes them from there, with what that
// takes; when a Migration is deleted, the real garbage collector removes its pages.
func TestInCluster(t *testing.T) {
	kube := os.Getenv("THESEUS_KUBE")
	if kube == "" {
		t.Skip("NOT TESTED: plans for 5,000 nodes in a real API server; THESEUS_KUBE names the lab's program of Kubernetes (bin/kube/*/kube in its cache)")
	}
	client := controlPlane(t, kube)
	for _, change := range []struct {
		name string
		make func(testing.TB) *request
	}{
		{"recreate", flannelToCalico}, {"adopt", adoption}, {"surge", surging}, {"to nftables", toNFTables}, {"upgrade", newer},
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
				t.Errorf("%s, %d nodes: %d pages, of which the Migration names %d", change.name, nodes, len(pages), len(migration.Spec.PlanPages))
			}
			t.Logf("%s, %d nodes, %d steps: %.2f MB in %d pages, written in %.1f s, read in %.1f s", change.name, nodes, len(p.Steps),
				float64(bytes)/1e6, len(pages), created.Seconds(), loaded.Seconds())
			if err := client.Resource(ownKind("Migration")).Namespace(v1alpha1.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			awaited(t, "its pages go with the Migration", func() bool { return len(pagesOf(t, client)) == 0 })
		}
	}
}

func ownKind(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: manifest.Plural(kind)}
}

func pagesOf(t *testing.T, client dynamic.Interface) []unstructured.Unstructured {
	t.Helper()
	list, err := client.Resource(ownKind("PlanPage")).Namespace(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
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

// controlPlane starts etcd, an API server and the garbage collector on loopback, with Theseus' definitions, until the test ends.
func controlPlane(t *testing.T, kube string) dynamic.Interface {
	t.Helper()
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account := file("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	etcd, peer, api := "http://"+address(t), "http://"+address(t), address(t)
	_, port, _ := net.SplitHostPort(api)
	keep(t, dir, kube, "etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer, "--log-level=warn")
	keep(t, dir, kube, "kube-apiserver", "--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+dir, "--token-auth-file="+file("tokens", "token,admin,admin,system:masters\n"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://plans.test", "--service-account-key-file="+account, "--service-account-signing-key-file="+account)
	config := &rest.Config{Host: "https://" + api, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 100, Burst: 200}
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	awaited(t, "the API server lets us in", func() bool {
		answer, err := plain.Get(config.Host + "/healthz")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil && answer.StatusCode == http.StatusOK && established(t.Context(), client)
	})
	keep(t, dir, kube, "kube-controller-manager", "--controllers=garbage-collector-controller", "--leader-elect=false", "--secure-port=0",
		"--kubeconfig="+file("kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: token}}],
clusters: [{name: c, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}]}`, api)))
	return client
}

// established makes Theseus' namespace and definitions, and says whether they serve.
func established(ctx context.Context, client dynamic.Interface) bool {
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	_, _ = client.Resource(namespaces).Create(ctx, manifest.Namespace(), metav1.CreateOptions{})
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for _, crd := range manifest.CRDs() {
		_, _ = client.Resource(definitions).Create(ctx, &crd, metav1.CreateOptions{})
	}
	for _, kind := range []string{"Migration", "PlanPage"} {
		if _, err := client.Resource(ownKind(kind)).Namespace(v1alpha1.Namespace).List(ctx, metav1.ListOptions{}); err != nil {
			return false
		}
	}
	return true
}

// address is one on loopback that is free.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// keep runs a program of Kubernetes until the test ends; what it says is in a file, which is shown where the test failed.
func keep(t *testing.T, dir, kube string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, args[0]+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(kube, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may be gone
		cmd.Wait()         //nolint:errcheck // killed
		log.Close()
		if said, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s said:\n%s", args[0], said[max(0, len(said)-4000):])
		}
	})
}
