package agents

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestWithAgentsInTheMiddle: With refuses while a migration has not ended, and writes nothing.
func TestWithAgentsInTheMiddle(t *testing.T) {
	for _, phase := range []engine.Phase{"", engine.PhaseRunning, engine.PhaseRollingBack,
		engine.PhasePaused, engine.PhaseNeedsPerson} {
		migration := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion,
			"kind": "Migration", "metadata": map[string]any{"name": "m", "namespace": v1alpha1.Namespace},
			"status": map[string]any{"phase": string(phase)}}}
		migrations := schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
			Resource: "migrations"}
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{migrations: "MigrationList"}, migration)
		a := &app.App{Streams: app.Streams{Err: io.Discard}}
		err := With(t.Context(), a, &kube.Client{Dynamic: client}, "look", Inspecting,
			func(context.Context, *kube.Actor) error {
				return errors.New("it looked")
			})
		if err == nil || err.Error() != "migration m has not ended: inspecting the nodes would replace its agents" ||
			!strings.Contains(exit.HintOf(err), "theseus status") {
			t.Errorf("in phase %q: %v; hint: %s", phase, err, exit.HintOf(err))
		}
		for _, action := range client.Actions() {
			if action.GetVerb() != "list" {
				t.Errorf("in phase %q it did %s %s", phase, action.GetVerb(), action.GetResource().Resource)
			}
		}
	}
}

// TestNamespace: where there is no namespace, it is marked as temporary, also by the process that comes after one that
// was killed. One that others made is not.
func TestNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		live      *unstructured.Unstructured
		temporary bool
	}{"none": {nil, true}, "of a killed process": {manifest.NamespaceForNow(), true},
		"of a chart": {manifest.Namespace(), false}, "at rest": {manifest.NamespaceAtRest(), false}} {
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		if c.live != nil {
			client = fake.NewSimpleDynamicClient(runtime.NewScheme(), c.live)
		}
		got, err := namespace(t.Context(), &kube.Client{Dynamic: client})
		if err != nil || manifest.Temporary(got) != c.temporary || !manifest.AdmitsPrivileged(got) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
