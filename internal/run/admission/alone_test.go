package admission

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// TestAloneSays: before Alone watches the lock of a process that did not renew it lately, it says so.
func TestAloneSays(t *testing.T) {
	other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "Migration",
		"metadata": map[string]any{"name": "other", "namespace": v1alpha1.Namespace},
		"status":   map[string]any{"phase": "Running"}}}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{{Group: v1alpha1.Group, Version: v1alpha1.Version,
			Resource: "migrations"}: "MigrationList"}, other)
	typed := typedfake.NewClientset()
	typed.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		lease, holder, seconds := &coordinationv1.Lease{}, "ann@far/1", int32(15)
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
			AcquireTime: &metav1.MicroTime{Time: time.Now().Add(-time.Hour)},
			RenewTime:   &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}}
		return true, lease, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var said []string
	err := Alone(ctx, Request{Client: &kube.Client{Dynamic: dynamic, Typed: typed}, Plan: &plan.Plan{},
		Say: func(text string) {
			said = append(said, text)
			cancel() // the rest of the watching is not waited for
		}})
	if !errors.Is(err, context.Canceled) || len(said) != 1 || !strings.HasPrefix(said[0], "migration other has not "+
		"ended: ann@far/1 has not renewed its lock on this cluster lately") ||
		!strings.HasSuffix(said[0], "; watching the lock for 15s") {
		t.Errorf("%v; said %q", err, said)
	}
}
