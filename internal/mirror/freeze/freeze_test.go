package freeze

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster/owner"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// patched applies what an API server would.
func patched(t *testing.T, o *unstructured.Unstructured, patch []byte) *unstructured.Unstructured {
	t.Helper()
	data, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = jsonpatch.MergePatch(data, patch); err != nil {
		t.Fatal(err)
	}
	return object(t, string(data))
}

// TestThereAndBack: what is suspended stands still, remembers what it was once, and gets back exactly that.
func TestThereAndBack(t *testing.T) {
	for _, text := range []string{
		`{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: a, annotations: {x: z}}, spec: {syncPolicy: {automated: {prune: true, selfHeal: false}, retry: {}}}}`,
		`{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: a, annotations: {x: z}}, spec: {syncPolicy: {automated: {}}}}`,
		`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: a, annotations: {x: z}}, spec: {path: x}}`,
		`{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: a, annotations: {x: z}}, spec: {suspend: false}}`,
		`{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: a, annotations: {x: z}}, spec: {suspend: true}}`,
	} {
		before := object(t, text)
		before.SetResourceVersion("7")
		patch, err := Suspend(before)
		if err != nil {
			t.Fatal(err)
		}
		frozen := patched(t, before, patch)
		path, value, _ := owner.Suspends(before)
		if got, found, _ := unstructured.NestedFieldNoCopy(frozen.Object, path...); found != (value != nil) ||
			found && got != value {
			t.Errorf("%s: suspended it has %v", text, got)
		}
		if again, err := Suspend(frozen); again != nil || err != nil {
			t.Errorf("%s: suspended again: %s, %v", text, again, err)
		}
		if patch, err = Resume(frozen); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before.Object, patched(t, frozen, patch).Object); diff != "" {
			t.Errorf("%s: -before +after:\n%s", text, diff)
		}
	}
	if _, err := Suspend(object(t, `{apiVersion: v1, kind: Pod}`)); err == nil {
		t.Error("a pod can be suspended")
	}
	if _, err := Resume(object(t, `{metadata: {annotations: {theseus.dev/before-freeze: "{"}}}`)); err == nil {
		t.Error("a broken note is taken")
	}
}

func TestWhoDeploys(t *testing.T) {
	var all []*unstructured.Unstructured
	for _, text := range []string{
		`{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: yes-here}, spec: {destination: {server: "https://kubernetes.default.svc", namespace: shop}}}`,
		`{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: yes-resources}, spec: {destination: {name: in-cluster}}, status: {resources: [{kind: Service, namespace: shop}]}}`,
		`{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: no-elsewhere}, spec: {destination: {server: "https://other", namespace: shop}}}`,
		`{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: yes-own, namespace: shop}}`,
		`{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: no-target, namespace: shop}, spec: {targetNamespace: other}}`,
		`{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: no-remote, namespace: shop}, spec: {kubeConfig: {secretRef: {name: x}}}}`,
		`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: yes-inventory, namespace: flux}, status: {inventory: {entries: [{id: shop_web_apps_Deployment}]}}}`,
		`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: yes-parent, namespace: flux}, status: {inventory: {entries: [{id: flux_yes-inventory_kustomize.toolkit.fluxcd.io_Kustomization}]}}}`,
		`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: yes-grandparent, namespace: flux}, status: {inventory: {entries: [{id: flux_yes-parent_kustomize.toolkit.fluxcd.io_Kustomization}, {id: x}]}}}`,
		`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: no-other, namespace: flux}}`,
	} {
		all = append(all, object(t, text))
	}
	chosen := map[string]bool{}
	for _, o := range WithParents(all, []string{"shop"}) {
		chosen[o.GetName()] = true
	}
	for _, o := range all {
		if chosen[o.GetName()] != strings.HasPrefix(o.GetName(), "yes") {
			t.Errorf("%s: %v", o.GetName(), chosen[o.GetName()])
		}
	}
}

func TestFreezeIsReadBack(t *testing.T) {
	want := Freeze{Namespaces: []string{"a", "b"}, By: "me", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Reason: "CHG-1", Allowed: []string{"x", "group:y"}}
	got, err := Read(want.Policy())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := want.Check(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []Freeze{{}, {Namespaces: []string{"a"}}, {Namespaces: []string{"a"}, Reason: "a\nb"},
		{Namespaces: []string{"a"}, Reason: "a", Allowed: []string{"group:"}},
		{Namespaces: []string{"a", "kube-system"}, Reason: "a"},
		{Namespaces: []string{"theseus-system"}, Reason: "a"}} {
		if wrong.Check() == nil {
			t.Errorf("%+v passes", wrong)
		}
	}
}
