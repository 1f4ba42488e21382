package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestGrants: who may not escalate and bind must have what the plan's roles grant.
func TestGrants(t *testing.T) {
	server, client := serve(t, nil, nil)
	server.answers, server.codes = aCluster()
	role := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1",
		"kind": "ClusterRole", "metadata": map[string]any{"name": "x"},
		"rules": []any{
			map[string]any{"apiGroups": []any{"", "apps"}, "resources": []any{"pods/eviction", "*"},
				"verbs": []any{"create"}},
			map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"},
				"resourceNames": []any{"mine"}, "verbs": []any{"get"}},
			map[string]any{"nonResourceURLs": []any{"/metrics"}, "verbs": []any{"get"}},
		}}}
	steps := []step.Step{{Actions: []step.Action{{Do: step.Apply{Object: role}}}}}
	asked := func() (all []string) {
		rights, err := Rights(t.Context(), client, nil, steps)
		if err != nil {
			t.Fatal(err)
		}
		for _, right := range rights {
			if right.Resource != "clusterroles" {
				all = append(all, fmt.Sprint(right.Verb, " ", right.Group, "/", right.Resource, " ", right.Allowed))
			}
		}
		return all
	}
	if got := asked(); got != nil {
		t.Errorf("who may grant everything is asked about %q", got)
	}
	server.denied = "bind"
	want := []string{"create /pods/eviction false", "create /* true", "create apps/pods/eviction false",
		"create apps/* true"}
	if diff := cmp.Diff(want, asked()); diff != "" {
		t.Error(diff)
	}
}

// TestRights: what a plan does is asked about once, by kind, also of kinds that it defines itself, there and back.
func TestRights(t *testing.T) {
	server, client := serve(t, nil, nil)
	server.answers, server.codes = aCluster()
	object := func(apiVersion, kind, namespace string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"name": "x", "namespace": namespace}}}
	}
	definition := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
	definition.Object["spec"] = map[string]any{"group": "example.org",
		"names": map[string]any{"kind": "Index", "plural": "indices"}}
	set := &step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "calico-system", Name: "calico-node"}
	steps := []step.Step{
		{Actions: []step.Action{
			{Do: step.Apply{Object: definition}},
			{Do: step.Apply{Object: object("example.org/v1", "Index", "")}},
			{Do: step.Apply{Object: object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "")}},
			{Do: step.Patch{Ref: step.Ref{APIVersion: "crd.projectcalico.org/v1", Kind: "IPPool", Name: "a"}}},
			{Do: step.Patch{Ref: step.Ref{APIVersion: "crd.projectcalico.org/v1", Kind: "IPPool", Name: "b"}}},
			{Do: step.Evict{}}, {Do: step.Taint{}}, {Do: step.Node{}}, {Do: step.Probe{}},
			{Do: step.Node{Verb: step.VerbInventory, Args: json.RawMessage(`{"taints":["a"]}`)}},
			{Do: step.Node{Verb: step.VerbClean, Args: json.RawMessage(`{"farewells":["a"]}`)}},
			{Do: step.Restart{Ref: *set, Mark: "theseus.dev/replace"}},
		}, After: []step.Condition{{Is: step.Rolled{Ref: *set}}, {Is: step.AgentSays{Namespace: "calico-system"}},
			{Is: step.Held{Namespace: "calico-system"}}},
			Gate: &step.Gate{Sessions: &step.Sessions{}}},
		{Undo: []step.Action{{Do: step.Hook{}}}},
	}
	known := []cluster.Right{
		{Verb: "get", Group: "apps", Resource: "daemonsets", Namespace: "kube-system", Allowed: true}, // not here
		{Verb: "list", Resource: "pods", Allowed: true},                                               // here too
		{Verb: "delete", Resource: "pods"},                                                            // may be here
		{Verb: "list", Resource: "nodes", Allowed: true},
		{Verb: "get", Resource: "nodes", Allowed: true},
	}
	rights, err := Rights(t.Context(), client, known, steps)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, right := range rights {
		name := strings.TrimSpace(fmt.Sprintf("%s/%s %s", right.Group, right.Resource, right.Namespace))
		if !right.Allowed {
			name += " DENIED"
		}
		at := slices.IndexFunc(got, func(line string) bool { return strings.HasPrefix(line, name+":") })
		if at < 0 {
			at, got = len(got), append(got, name+":")
		}
		got[at] += " " + right.Verb
	}
	want := []string{
		"apiextensions.k8s.io/customresourcedefinitions: get create patch delete",
		"example.org/indices: get create patch delete",
		"admissionregistration.k8s.io/validatingadmissionpolicies: get create patch delete",
		"crd.projectcalico.org/ippools: get patch list",
		"/pods: get",
		"/pods/eviction DENIED: create",
		"apps/replicasets: get",
		"apps/deployments: get",
		"apps/statefulsets: get",
		"apps/daemonsets: get",
		"*/*/scale: get",
		"/nodes: update patch delete",
		"/nodes/status: patch",
		"apps/daemonsets calico-system: get",
		"apps/controllerrevisions calico-system: list",
		"/pods calico-system: delete patch",
		"/pods/log calico-system: get",
		"crd.projectcalico.org/bgpconfigurations: list",
		"crd.projectcalico.org/bgppeers: list",
		"crd.projectcalico.org/felixconfigurations: list",
		"crd.projectcalico.org/blockaffinities: list",
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRightsInFewCalls: what the API server lists is not asked about one by one; what it does not list is.
func TestRightsInFewCalls(t *testing.T) {
	server, client := serve(t, nil, nil)
	server.answers, server.codes = aCluster()
	const reviews, lists = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	for _, test := range []struct {
		rules string
		few   bool
	}{
		{`[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]`, true},
		{`[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"resourceNames":["mine"]}]`, false},
		{`[{"verbs":["get"],"apiGroups":["example.org"],"resources":["*"]}]`, false},
		{"", false},
	} {
		server.rules, server.asked = test.rules, map[string]int{}
		rights, err := reader{client: client}.ask(t.Context(), needs())
		if err != nil || len(rights) < 40 {
			t.Fatalf("%d rights: %v", len(rights), err)
		}
		if few := server.asked[reviews] == 0; few != test.few || server.asked[lists] > 5 {
			t.Errorf("%s: %d reviews, %d lists, of %d rights",
				test.rules, server.asked[reviews], server.asked[lists], len(rights))
		}
	}
}
