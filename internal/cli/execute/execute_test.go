package execute

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/admission"
)

// silent is a view of a run that only takes what is said.
type silent struct{ run.View }

func (silent) Say(string) {}

// TestMayBegin: a plan that begins is refused if another migration has begun meanwhile. One that continues is not.
func TestMayBegin(t *testing.T) {
	lists := map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"Migration", "PlanPage", "JournalPage"} {
		lists[schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
			Resource: manifest.Plural(kind)}] = kind + "List"
	}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	client, p := &kube.Client{Typed: fake.NewClientset(), Dynamic: dynamic}, &plan.Plan{Name: "new"}
	r := New(&app.App{}, client, mirror.Access{}, p, true)
	r.View = silent{}
	if err := r.MayBegin(t.Context()); err != nil {
		t.Errorf("nothing else is there: %v", err)
	}
	other := manifest.Namespace().DeepCopy()
	other.SetAPIVersion(v1alpha1.APIVersion)
	other.SetKind("Migration")
	other.SetName("other")
	other.SetNamespace(v1alpha1.Namespace)
	if err := dynamic.Tracker().Create(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: "migrations"}, other, v1alpha1.Namespace); err != nil {
		t.Fatal(err)
	}
	for _, locked := range []bool{false, true} {
		if locked { // by a process that ended
			if _, err := run.Leases(client).Create(t.Context(), clustertest.DeadLease(),
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		err := r.MayBegin(t.Context())
		if _, refused := errors.AsType[*admission.Refusal](err); !refused ||
			err.Error() != "another migration has not ended, and no process runs it: other" {
			t.Errorf("another has begun: %v", err)
		}
	}
	if r := New(&app.App{}, client, mirror.Access{}, p, false); r.MayBegin != nil {
		t.Error("a plan that continues is asked, too")
	}
}
