package kube

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/step"
)

// given says whether roles allow something.
func given(t *testing.T, roles []unstructured.Unstructured, verb, group, resource, namespace string) bool {
	t.Helper()
	for i := range roles {
		if !strings.HasSuffix(roles[i].GetKind(), "Role") ||
			roles[i].GetNamespace() != "" && roles[i].GetNamespace() != namespace {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(roles[i].Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, group) && (slices.Contains(rule.Resources, resource) ||
				slices.Contains(rule.Resources, "*")) && slices.Contains(rule.Verbs, verb) {
				return true
			}
		}
	}
	return false
}

// TestRoles: each duty has its rights and those of the ones before it, and no others; a plan's are within the
// namespaces that stay.
func TestRoles(t *testing.T) {
	roles := func(duty Duty, steps []step.Step) []unstructured.Unstructured {
		t.Helper()
		name := ""
		if steps != nil {
			name = "a-plan"
		}
		all, err := Roles(duty, name, steps, []Subject{{Kind: "Group", Name: "sre"}})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	look, plan, operate := roles(Look, nil), roles(Plan, nil), roles(Operate, nil)
	for _, n := range needs() {
		for _, verb := range strings.Fields(n.verbs) {
			if !given(t, operate, verb, n.group, n.resource, n.namespace) {
				t.Errorf("who operates may not %s %s in %q", verb, n.resource, n.namespace)
			}
		}
	}
	for _, n := range rightsOf(Plan, nil) {
		for _, verb := range strings.Fields(n.verbs) {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) || !given(t, plan, verb, n.group, n.resource,
				n.namespace) || !given(t, operate, verb, n.group, n.resource, n.namespace) {
				t.Errorf("who plans may %s %s", verb, n.resource)
			}
		}
	}
	for _, all := range [][]unstructured.Unstructured{look, plan, operate} {
		for _, verb := range []string{"get", "list", "create"} {
			if given(t, all, verb, "", "secrets", "kube-system") || given(t, all, verb, "", "pods/exec", "default") {
				t.Errorf("%s of secrets or pods/exec is given", verb)
			}
		}
	}
	const own = "theseus.dev"
	for _, all := range [][]unstructured.Unstructured{look, plan, operate, roles(Controller, nil)} {
		if given(t, all, "approve", own, "migrations", "theseus-system") ||
			given(t, all, "create", own, "approvals", "theseus-system") {
			t.Errorf("%s includes approving", all[0].GetName())
		}
	}
	if approves := roles(Approve, nil); !given(t, approves, "approve", own, "migrations", "theseus-system") ||
		!given(t, approves, "create", own, "approvals", "theseus-system") ||
		given(t, approves, "patch", own, "migrations", "theseus-system") ||
		given(t, approves, "list", "", "nodes", "") {
		t.Errorf("approve: %v", approves)
	}
	const aggregated = "rbac.authorization.k8s.io/aggregate-to-view"
	if given(t, look, "list", "", "nodes", "") || !slices.ContainsFunc(look, func(o unstructured.Unstructured) bool {
		return o.GetKind() == "ClusterRole" && o.GetLabels()[aggregated] == "true"
	}) {
		t.Errorf("look: %v", look)
	}
	for duty, verbs := range map[Duty]string{Look: "get", Plan: "get", Approve: "get", Controller: "get create update",
		Operate: "get create update"} {
		all := roles(duty, []step.Step{})
		for _, verb := range strings.Fields("get create update") {
			if given(t, all, verb, "", "configmaps", "theseus-system") != slices.Contains(strings.Fields(verbs),
				verb) || verb != "get" && given(t, all, verb, "", "configmaps", "shop") {
				t.Errorf("%s: %s of the evidence of runs, want %s there alone", duty, verb, verbs)
			}
		}
	}

	object := func(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"name": name, "namespace": namespace}}}
	}
	ref := func(apiVersion, kind, namespace, name string) *step.Ref {
		return &step.Ref{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}
	}
	exact := roles(Operate, []step.Step{{Actions: []step.Action{
		{Do: step.Apply{Object: object("v1", "Namespace", "", "comes")}},
		{Do: step.Apply{Object: object("apps/v1", "DaemonSet", "comes", "new")}},
		{Do: step.Delete{Ref: *ref("apps/v1", "DaemonSet", "goes", "old")}},
		{Do: step.Delete{Ref: *ref("v1", "Namespace", "", "goes")}},
		{Do: step.Delete{Ref: *ref("batch/v1", "Job", "stays", "x")}},
		{Do: step.Apply{Object: object("scheduling.k8s.io/v1", "PriorityClass", "stays", "from-a-chart")}},
		{Do: step.Apply{Object: object("example.org/v1", "Widget", "stays", "from-a-chart")}},
		{Do: step.Apply{Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "widgets.example.org"},
			"spec": map[string]any{"group": "example.org", "scope": "Cluster",
				"names": map[string]any{"kind": "Widget", "plural": "widgets"}}}}}},
		{Do: step.Node{Verb: step.VerbClean, Args: json.RawMessage(`{"annotations":["a"]}`)}},
	}}})
	for _, want := range []struct {
		verb, group, resource, namespace string
		given                            bool
	}{
		{"create", "apps", "daemonsets", "comes", true}, {"get", "apps", "daemonsets", "goes", true},
		{"delete", "batch", "jobs", "stays", true}, {"delete", "batch", "jobs", "elsewhere", false},
		{"create", "scheduling.k8s.io", "priorityclasses", "", true}, {"create", "example.org", "widgets", "", true},
		{"create", "crd.projectcalico.org", "ippools", "", false},
		{"list", "", "secrets", "", false},
		{"update", "theseus.dev", "journalpages", "theseus-system", true},
		{"patch", "", "nodes", "", true}, {"patch", "", "nodes/status", "", false},
		{"create", "", "pods", "theseus-system", false}, {"create", "", "pods/eviction", "stays", false},
		{"delete", "", "services", "stays", false}, {"delete", "networking.k8s.io", "networkpolicies", "stays", false},
		{"list", "", "events", "stays", false}, {"delete", "coordination.k8s.io", "leases", "theseus-system", false},
	} {
		if got := given(t, exact, want.verb, want.group, want.resource, want.namespace); got != want.given {
			t.Errorf("%v: %v", want, got)
		}
	}
	for i := range exact {
		if kind := exact[i].GetKind(); kind != "Namespace" && (exact[i].GetName() != "theseus-operate-a-plan" ||
			exact[i].GetLabels()["theseus.dev/migration"] != "a-plan") {
			t.Errorf("%s %s would replace that of another plan, or of all, or cannot be deleted by its label",
				kind, exact[i].GetName())
		}
		if namespace := exact[i].GetNamespace(); namespace == "comes" || namespace == "goes" {
			t.Errorf("%s %s is in a namespace that comes or goes", exact[i].GetKind(), namespace)
		}
	}
}

// TestRolesUse: what a plan uses beyond the operations of its actions is in its roles, in its namespace alone.
func TestRolesUse(t *testing.T) {
	all, err := Roles(Operate, "a-plan", []step.Step{}, nil, step.Use{Resource: "configmaps", Namespace: "shop",
		Verbs: "create"}, step.Use{Group: "cert-manager.io", Resource: "certificates", Verbs: "get patch"})
	if err != nil {
		t.Fatal(err)
	}
	if !given(t, all, "create", "", "configmaps", "shop") || given(t, all, "create", "", "configmaps", "other") ||
		!given(t, all, "patch", "cert-manager.io", "certificates", "other") {
		t.Errorf("%v", all)
	}
}

func TestReadSubject(t *testing.T) {
	for text, want := range map[string]Subject{"user:a:b": {Kind: "User", Name: "a:b"}, "group:sre": {Kind: "Group",
		Name: "sre"}, "serviceaccount:ops/x": {Kind: "ServiceAccount", Namespace: "ops", Name: "x"}} {
		if got, err := ReadSubject(text); err != nil || got != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "sre", "user:", "serviceaccount:x", "serviceaccount:/x", "robot:x"} {
		if got, err := ReadSubject(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}
