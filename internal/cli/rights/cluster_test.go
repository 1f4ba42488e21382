package rights

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run"
)

// TestAPIServer: with a real API server, the roles of `theseus rights operate --plan` are enough for the plan. Without
// any one right that its actions use, the API server refuses it, so no other rule grants it; and what the plan does not
// need is refused.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "the role operate with a real API server")
	config := clustertest.ControlPlane(t, program, clustertest.Options{Users: []string{"op"}})
	as := kubetest.Users(t, config)
	admin, op := as("token"), as("op")
	if err := run.Prepare(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml")),
		v1alpha1.ChangeSpec{Dataplane: "nftables", AgentImage: "theseus.dev/agent:dev"}, drivers.All(), nil,
		plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Name: "exact"})
	if err != nil {
		t.Fatal(err)
	}
	roles, err := kube.Roles(kube.Operate, p.Name, p.Steps, []kube.Subject{{Kind: rbacv1.UserKind, Name: "op"}})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Apply(t, admin, roles...)
	uses := enough(t, op, p)
	for _, right := range uses {
		oneless(t, admin, op, p, roles, right)
	}
	t.Logf("%d rights, one at a time", len(uses))
	notTooMuch(t, op)
}

// denied are the rights for the plan's actions that are not granted.
func denied(t *testing.T, op *kube.Client, p *plan.Plan) (all, none []cluster.Right) {
	t.Helper()
	all, err := kube.Rights(t.Context(), op, nil, p.Steps)
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range all {
		if !right.Allowed {
			none = append(none, right)
		}
	}
	return all, none
}

// enough reads a snapshot and what the plan writes as the operator, and returns the rights that the plan's actions use.
func enough(t *testing.T, op *kube.Client, p *plan.Plan) []cluster.Right {
	t.Helper()
	var uses, lacks []cluster.Right
	for range 100 { // a new role takes the API server a moment
		if uses, lacks = denied(t, op, p); len(lacks) == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	s, err := kube.Snapshot(t.Context(), op, "test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := kube.AddWritten(t.Context(), op, s, p.Steps); err != nil {
		t.Fatal(err)
	}
	for _, right := range slices.Concat(lacks, s.Rights) {
		if !right.Allowed {
			t.Errorf("may not %s %s.%s in %q", right.Verb, right.Resource, right.Group, right.Namespace)
		}
	}
	for _, source := range s.Sources {
		if source.Missing == "forbidden" || strings.HasSuffix(source.Missing, ": forbidden") {
			t.Errorf("may not read %s: %s", source.Resource, source.Missing)
		}
	}
	return uses
}

// oneless takes one right away from all roles, and gives it back.
func oneless(t *testing.T, admin, op *kube.Client, p *plan.Plan, roles []unstructured.Unstructured,
	right cluster.Right) {
	t.Helper()
	var less, whole []unstructured.Unstructured
	for i := range roles {
		if rules, ok, _ := unstructured.NestedSlice(roles[i].Object, "rules"); ok {
			short := roles[i].DeepCopy()
			if err := unstructured.SetNestedSlice(short.Object, without(rules, right), "rules"); err != nil {
				t.Fatal(err)
			}
			less, whole = append(less, *short), append(whole, roles[i])
		}
	}
	kubetest.Apply(t, admin, less...)
	defer func() {
		kubetest.Apply(t, admin, whole...)
		for range 100 {
			if _, lacks := denied(t, op, p); len(lacks) == 0 {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatal("the roles are not in force again")
	}()
	for range 60 {
		if _, lacks := denied(t, op, p); slices.ContainsFunc(lacks, func(r cluster.Right) bool {
			return r.Verb == right.Verb && r.Group == right.Group && r.Resource == right.Resource &&
				r.Namespace == right.Namespace
		}) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%s of %s.%s in %q is granted by more than one rule",
		right.Verb, right.Resource, right.Group, right.Namespace)
}

// without copies rules, and removes one verb on one resource.
func without(rules []any, right cluster.Right) []any {
	var all []any
	for _, rule := range rules {
		fields, _ := rule.(map[string]any)
		groups, _, _ := unstructured.NestedStringSlice(fields, "apiGroups")
		resources, _, _ := unstructured.NestedStringSlice(fields, "resources")
		verbs, _, _ := unstructured.NestedStringSlice(fields, "verbs")
		for _, resource := range resources {
			kept := slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool {
				return verb == right.Verb && groups[0] == right.Group && (resource == right.Resource || resource == "*")
			})
			if len(kept) > 0 {
				all = append(all,
					map[string]any{"apiGroups": []any{groups[0]}, "resources": []any{resource}, "verbs": anyOf(kept)})
			}
		}
	}
	return all
}

func anyOf(texts []string) []any {
	all := make([]any, len(texts))
	for i := range texts {
		all[i] = texts[i]
	}
	return all
}

// notTooMuch: what no step of this plan needs is refused.
func notTooMuch(t *testing.T, op *kube.Client) {
	t.Helper()
	for _, one := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets", Namespace: "kube-system"}, {Verb: "list", Resource: "secrets"},
		{Verb: "create", Resource: "secrets", Namespace: "theseus-system"},
		{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "default"},
		{Verb: "create", Resource: "pods", Subresource: "attach", Namespace: "default"},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "kube-system"},
		{Verb: "get", Resource: "nodes", Subresource: "proxy"}, {Verb: "impersonate", Resource: "users"},
		{Verb: "impersonate", Resource: "groups"}, {Verb: "impersonate", Resource: "serviceaccounts"},
		{Verb: "create", Resource: "configmaps", Namespace: "default"},
		{Verb: "patch", Resource: "serviceaccounts", Namespace: "default"},
		{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "default"},
		{Verb: "patch", Group: "apps", Resource: "daemonsets", Namespace: "default"},
		{Verb: "create", Group: "apps", Resource: "statefulsets", Namespace: "kube-system"},
		{Verb: "create", Group: "batch", Resource: "jobs", Namespace: "kube-system"},
		{Verb: "delete", Resource: "nodes"},
		{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Verb: "patch", Group: "argoproj.io", Resource: "applications", Namespace: "argocd"},
		{Verb: "create", Group: rbacv1.GroupName, Resource: "rolebindings", Namespace: "default"},
		{Verb: "escalate", Group: rbacv1.GroupName, Resource: "roles", Namespace: "default"},
		{Verb: "create", Group: v1alpha1.Group, Resource: "approvals", Namespace: v1alpha1.Namespace},
		{Verb: "approve", Group: v1alpha1.Group, Resource: "migrations", Namespace: v1alpha1.Namespace},
		{Verb: "delete", Group: v1alpha1.Group, Resource: "journalpages", Namespace: v1alpha1.Namespace},
	} {
		said, err := op.Typed.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &one}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if said.Status.Allowed {
			t.Errorf("may %s %s", one.Verb, strings.Trim(fmt.Sprintf("%s/%s.%s in %q", one.Resource, one.Subresource,
				one.Group, one.Namespace), "/."))
		}
	}
}
