package guard

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	guardplan "github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestFrozen: on a frozen cluster, nothing is read but the freeze, and nothing is written.
func TestFrozen(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/"+v1alpha1.Namespace {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"annotations":{%q:"incident 12"}}}`,
			v1alpha1.Namespace, v1alpha1.AnnotationFreeze)
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"users":[{"name":"u","user":{}}],"clusters":[{"name":"c","cluster":{"server":%q}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &kubeconfig
	var out bytes.Buffer
	a := &app.App{Kubeconfig: flags, Streams: app.Streams{Out: &out, Err: &out}}
	code := exit.Code(&out, (&options{}).guard(t.Context(), a, v1alpha1.ChangeSpec{},
		kind.Guard{Command: []string{"true"}}))
	if code != exit.Failed || !strings.Contains(out.String(), "frozen: incident 12") {
		t.Errorf("exit %d: %s", code, out.String())
	}
}

// guards is a plan of a guard, with the name.
func guards(t *testing.T, name string) *plan.Plan {
	t.Helper()
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	draft, err := guardplan.Propose(&kind.Request{Snapshot: snapshot,
		Change: v1alpha1.ChangeSpec{AgentImage: "theseus.dev/agent:dev"}, Drivers: drivers.All(),
		Options: plan.Options{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Name: name}},
		kind.Guard{Others: true, Quiet: step.Duration(time.Second), AtMost: step.Duration(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Seal(snapshot, draft)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type mapper struct{ *meta.DefaultRESTMapper }

func (mapper) Reset() {}

// holding is a cluster that holds plans.
func holding(t *testing.T, plans ...*plan.Plan) *kube.Client {
	t.Helper()
	kinds, known := map[schema.GroupVersionResource]string{{Version: "v1", Resource: "configmaps"}: "ConfigMapList"},
		mapper{meta.NewDefaultRESTMapper(nil)}
	for _, kind := range []string{"Migration", "PlanPage", "JournalPage", "ProbePlan", "ProbeReport"} {
		kinds[schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
			Resource: manifest.Plural(kind)}] = kind + "List"
		known.Add(schema.GroupVersionKind{Group: v1alpha1.Group, Version: v1alpha1.Version, Kind: kind},
			meta.RESTScopeNamespace)
	}
	client, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, "test") // what is asked otherwise is not there
	if err != nil {
		t.Fatal(err)
	}
	client.Typed, client.Dynamic, client.Mapper = fake.NewClientset(),
		dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), known
	for _, p := range plans {
		if err := journal.Create(t.Context(), client.Dynamic, p); err != nil {
			t.Fatal(err)
		}
	}
	return client
}

// TestFind: a newer plan that cannot be read hides no guard, and is named.
func TestFind(t *testing.T) {
	// the fake keeps no times, so the names decide which is newer
	client := holding(t, guards(t, "broken"), guards(t, "whole"))
	of := schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "migrations"}
	if _, err := client.Dynamic.Resource(of).Namespace(v1alpha1.Namespace).Patch(t.Context(), "broken",
		types.MergePatchType, []byte(`{"spec":{"planHash":"other"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	p, _, notes, err := find(t.Context(), client, "")
	if err != nil || p.Name != "whole" || len(notes) != 1 || !strings.HasPrefix(notes[0], "broken is passed over: ") {
		t.Errorf("%v, %q, %v", p, notes, err)
	}
	if _, _, _, err := find(t.Context(), client, "broken"); err == nil {
		t.Error("it was named, and cannot be read")
	}
}

// TestStatusWithoutAProcess: a guard whose process was killed is interrupted, also while another process looks at it,
// and, to a user who may only read, while the lock still has the name of that process.
func TestStatusWithoutAProcess(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := guards(t, "g")
	client := holding(t, p)
	records := clitest.Records(t, p, engine.Record{Event: engine.StepBegan, Step: p.Steps[0].ID})
	if err := journal.NewCluster(client.Dynamic, p.Name).Append(t.Context(), records...); err != nil {
		t.Fatal(err)
	}
	state, err := engine.Replay(records)
	if err != nil {
		t.Fatal(err)
	}
	interrupted := func() {
		t.Helper()
		var out bytes.Buffer
		a := &app.App{Streams: app.Streams{Out: &out, Err: &out}}
		if err := status(t.Context(), a, client, p, state); err != nil ||
			!strings.Contains(out.String(), ", interrupted\n") {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
	lease, _, err := journal.Acquire(t.Context(), run.Leases(client), journal.Looker())
	if err != nil {
		t.Fatal(err)
	}
	interrupted()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Leases(client).Update(t.Context(), clustertest.DeadLease(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	client.Typed.(*fake.Clientset).PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object,
		error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, manifest.Lease, nil)
	})
	interrupted()
}
