package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// TestArchiveAPIServer: a real API server takes parts of full size from who has the controller's role, gives them to
// who may look, and removes them with the Migration.
func TestArchiveAPIServer(t *testing.T) {
	program := clustertest.Program(t, "evidence in a real API server")
	config := clustertest.ControlPlane(t, program,
		clustertest.Options{Users: []string{"runs", "looks", "eve"}, Collects: true})
	as := kubetest.Users(t, config)
	admin := as("token")
	if err := Prepare(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	for duty, user := range map[kube.Duty]string{kube.Controller: "runs", kube.Look: "looks"} {
		roles, err := kube.Roles(duty, "", nil, []kube.Subject{{Kind: rbacv1.UserKind, Name: user}})
		if err != nil {
			t.Fatal(err)
		}
		kubetest.Apply(t, admin, roles...)
	}
	migration := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion,
		"kind": "Migration", "metadata": map[string]any{"name": "m", "namespace": v1alpha1.Namespace},
		"spec": map[string]any{"planHash": "hash"}}}
	if _, err := admin.Dynamic.Resource(migrations).Namespace(v1alpha1.Namespace).Create(t.Context(), migration,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	random := rand.NewChaCha8([32]byte{})
	var ids []string
	for range 60 {
		noise := make([]byte, 20_000)
		_, _ = random.Read(noise)
		ids = append(ids, fmt.Sprintf("n/%x", noise))
	}
	a := newArchive(as("runs").Dynamic, "m")
	wait(t, "the role of the controller is in force", func() bool {
		_, err := a.load(t.Context())
		return err == nil
	})
	for sent := range int64(4) {
		want := kube.NewEvidence(measured(sent, ids...))
		if err := a.save(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		got, err := newArchive(as("looks").Dynamic, "m").load(t.Context())
		if diff := cmp.Diff(want.Document(), got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Fatalf("%v, after write %d (-want +got):\n%.500s", err, sent, diff)
		}
	}
	if _, err := newArchive(as("eve").Dynamic, "m").load(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("who has no role reads it: %v", err)
	}
	if err := newArchive(as("looks").Dynamic, "m").save(t.Context(),
		kube.NewEvidence(measured(9, "n/a"))); !apierrors.IsForbidden(err) {
		t.Errorf("who may look writes it: %v", err)
	}
	count := func() (n int) {
		t.Helper()
		all, err := admin.Dynamic.Resource(configMaps).Namespace(v1alpha1.Namespace).List(t.Context(),
			metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all.Items {
			if strings.HasPrefix(one.GetName(), "theseus-evidence-m-") {
				n++
			}
		}
		return n
	}
	if n := count(); n < 4 {
		t.Errorf("%d ConfigMaps in two sets", n)
	}
	if err := admin.Dynamic.Resource(migrations).Namespace(v1alpha1.Namespace).Delete(t.Context(), "m",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the evidence goes with its Migration", func() bool { return count() == 0 })
}

// wait waits for something that takes the API server a moment.
func wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds() {
		if outage.Sleep(ctx, 200*time.Millisecond) != nil {
			t.Fatal("not within a minute: " + what)
		}
	}
}
