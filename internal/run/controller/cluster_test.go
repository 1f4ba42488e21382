package controller

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// TestAPIServer holds, against a real API server, who may approve, that an approval never changes, and how the
// controller counts approvals and writes conditions with no more than its own permissions.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "approvals in a real API server")
	const controls = "system:serviceaccount:theseus-system:theseus-controller"
	config := clustertest.ControlPlane(t, program,
		clustertest.Options{Users: []string{"ann", "bob", "eve", controls}, Collects: true})
	as := kubetest.Users(t, config)
	admin := as("token")
	if err := run.Prepare(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	for _, grant := range []struct {
		duty kube.Duty
		to   []kube.Subject
	}{
		{kube.Approve, []kube.Subject{{Kind: rbacv1.UserKind, Name: "ann"}, {Kind: rbacv1.UserKind, Name: "bob"}}},
		{kube.Controller, []kube.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.Namespace,
			Name: manifest.ControllerName}}},
	} {
		roles, err := kube.Roles(grant.duty, "", nil, grant.to)
		if err != nil {
			t.Fatal(err)
		}
		kubetest.Apply(t, admin, roles...)
	}
	// eve may create every Approval that the policy lets her create.
	kubetest.Apply(t, admin,
		unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1",
			"kind": "ClusterRole", "metadata": map[string]any{"name": "eve"},
			"rules": []any{map[string]any{"apiGroups": []any{v1alpha1.Group}, "resources": []any{"approvals"},
				"verbs": []any{"*"}}}}},
		unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1",
			"kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "eve"},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "eve"},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}}}})

	c := &Controller{Client: as(controls), Holder: HolderPrefix + "test", Approvals: 1, Dir: t.TempDir(),
		Version: "v0", Out: os.Stderr, plans: map[string]*loaded{}, again: map[string]*pause{},
		unread: map[string]*pause{}}
	records(t, c)
	create(t, admin)

	turns(t, c)
	wants(t, admin, v1alpha1.ConditionApproved, "False", v1alpha1.ReasonPolicyMissing)
	tells(t, admin, v1alpha1.ReasonPolicyMissing, "install or upgrade the chart")
	kubetest.Apply(t, admin, manifest.ApprovalPolicy()...)
	awaited(t, "the policy is in force", func() bool {
		err := approve(t, as("eve"), "probe", "eve")
		if err == nil { // a new policy takes the API server a moment
			if err := admin.Dynamic.Resource(resource("Approval")).Namespace(v1alpha1.Namespace).Delete(t.Context(),
				manifest.Approval("probe", "hash", "eve", "").GetName(),
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return err != nil && strings.Contains(err.Error(), "verb approve")
	})
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionApproved, "False", v1alpha1.ReasonTooFewApprovals)

	for _, test := range []struct{ user, name, says string }{
		{"eve", "eve", `user "eve" has no permission for the verb approve on migration "m"`},
		{"eve", "ann", `user "eve" may not approve in the name of "ann"`},
		{"ann", "bob", `user "ann" may not approve in the name of "bob"`},
		{"ann", "ann", ""},
		{controls, controls, "forbidden"},
	} {
		err := approve(t, as(test.user), "m", test.name)
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s approves as %s: %v, want %q", test.user, test.name, err, test.says)
		}
	}
	approvals := admin.Dynamic.Resource(resource("Approval")).Namespace(v1alpha1.Namespace)
	for _, client := range []*kube.Client{admin, as("eve")} {
		_, err := client.Dynamic.Resource(resource("Approval")).Namespace(v1alpha1.Namespace).Patch(t.Context(),
			manifest.Approval("m", "hash", "ann", "").GetName(), types.MergePatchType,
			[]byte(`{"spec":{"planHash":"other"}}`), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), "the spec of an approval never changes") {
			t.Errorf("an approval was changed: %v", err)
		}
	}

	turns(t, c) // the plan cannot be read: this Migration has none
	wants(t, admin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonNeedsPerson)
	found, err := listApprovals(t.Context(), c.Client.Dynamic)
	if err != nil || len(found) != 1 {
		t.Fatalf("%d approvals, %v", len(found), err)
	}
	policy, err := readPolicy(t.Context(), c.Client)
	if counted := count(Situation{Migration: &v1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec: v1alpha1.MigrationSpec{PlanHash: "hash"}}, Approvals: found, Policy: policy}); err != nil ||
		policy.Reason != "" || policy.Unserved || len(counted.who) != 1 || counted.who[0] != "ann" {
		t.Errorf("%v approved, %+v, %v", counted.who, policy, err)
	}
	keepsConditions(t, admin)
	if err := approvals.Delete(t.Context(), found[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := Removable(t.Context(), c.Client); err == nil || !strings.Contains(err.Error(), "m (") ||
		engine.HintOf(err) == "" {
		t.Errorf("the controller may be removed: %v", err)
	}
	change(t, admin, `{"spec":{"inCluster":false}}`)
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionProgressing, "False", v1alpha1.ReasonHandedOver)
	if err := Removable(t.Context(), c.Client); err != nil {
		t.Error(err)
	}
	lacksRights(t, admin, c, as("ann"))
	tellsNodesAndPods(t, admin, c)
	pausesWhenTakenBack(t, admin)
	unbind := manifest.ApprovalPolicy()[1]
	if err := unstructured.SetNestedStringSlice(unbind.Object, []string{"Warn"}, "spec",
		"validationActions"); err != nil {
		t.Fatal(err)
	}
	kubetest.Apply(t, admin, unbind)
	if policy, err = readPolicy(t.Context(), c.Client); err != nil ||
		policy.Reason != v1alpha1.ReasonPolicyChanged {
		t.Errorf("%+v, %v", policy, err)
	}
	tellsUnpulled(t, admin, c)
	lacksApprovals(t, admin, c)
}

// lacksApprovals: CRDs of a version without approvals are the reason why none counts, and the condition says so.
func lacksApprovals(t *testing.T, admin *kube.Client, c *Controller) {
	t.Helper()
	if err := admin.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}).Delete(t.Context(), manifest.Plural("Approval")+"."+v1alpha1.Group,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "approvals are not served", func() bool {
		_, err := listApprovals(t.Context(), c.Client.Dynamic)
		return apierrors.IsNotFound(err)
	})
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionApproved, "False", v1alpha1.ReasonOldCRDs)
	tells(t, admin, v1alpha1.ReasonOldCRDs, "upgrade the chart of Theseus")
}

// lacksRights: a plan that is approved does not begin without the permissions for it, and the condition says how to
// grant them.
func lacksRights(t *testing.T, admin *kube.Client, c *Controller, ann *kube.Client) {
	t.Helper()
	migrations := admin.Dynamic.Resource(resource("Migration")).Namespace(v1alpha1.Namespace)
	if err := migrations.Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	var err error
	if snapshot.UID, err = admin.ClusterUID(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(snapshot,
		v1alpha1.ChangeSpec{To: "calico", Manifest: "calico.yaml", PodCIDR: "10.96.0.0/16",
			AgentImage: "theseus.dev/agent:dev", Strategy: "recreate"}, drivers.All(), nil,
		plan.Options{Version: "v0.0.0-test", Now: noon, Name: "m",
			Manifest: cnitest.Fixture(t, "calico-manifest.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	if err := journal.Create(t.Context(), admin.Dynamic, p); err != nil {
		t.Fatal(err)
	}
	change(t, admin, `{"spec":{"inCluster":true}}`)
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionApproved, "False", v1alpha1.ReasonTooFewApprovals)
	wants(t, admin, v1alpha1.ConditionDegraded, "False", v1alpha1.ReasonHealthy)
	if _, err := ann.Dynamic.Resource(resource("Approval")).Namespace(v1alpha1.Namespace).Create(t.Context(),
		manifest.Approval("m", p.Hash, "ann", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitsForTimes(t, admin, c)
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionPaused, "False", v1alpha1.ReasonNotPaused)
	wants(t, admin, v1alpha1.ConditionApproved, "True", v1alpha1.ReasonEnoughApprovals)
	// There is no network on this cluster either, so rights are not all that is missing.
	wants(t, admin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonBlocked)
	tells(t, admin, v1alpha1.ReasonBlocked, "theseus rights operate --plan")
	for _, condition := range read(t, admin).Status.Conditions {
		if condition.Type == v1alpha1.ConditionDegraded && (!strings.Contains(condition.Message, "may not") ||
			!strings.Contains(condition.Message, "theseus rights operate --plan")) {
			t.Errorf("the condition does not say how to grant the permissions: %s", condition.Message)
		}
	}
}

// keepsConditions: the journal's summary of a Migration and the controller's conditions do not overwrite each other.
func keepsConditions(t *testing.T, admin *kube.Client) {
	t.Helper()
	change(t, admin, `{"status":{"phase":"running","step":"s"}}`)
	wants(t, admin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonNeedsPerson)
	if m := read(t, admin); m.Status.Phase != "running" || len(m.Status.Conditions) != 8 {
		t.Errorf("%+v", m.Status)
	}
}

// tellsNodesAndPods: with its own permissions, the controller writes events of nodes and of pods in any namespace,
// which name the Migration, and which `kubectl describe` finds by the UID.
func tellsNodesAndPods(t *testing.T, admin *kube.Client, c *Controller) {
	t.Helper()
	shop := unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "shop"}}}
	kubetest.Apply(t, admin, shop)
	broadcaster := record.NewBroadcaster(record.WithContext(t.Context()))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(Sink(c.Client.Typed.CoreV1()))
	teller := &Controller{Events: broadcaster.NewRecorder(runtime.NewScheme(),
		corev1.EventSource{Component: manifest.ControllerName})}
	m := read(t, admin)
	h := newHerald(twoNodes(), run.NewScript(twoNodes()),
		func(about corev1.ObjectReference, kind, reason, message string) {
			teller.eventAbout(&m, about, kind, reason, message)
		})
	h.node("n1", corev1.EventTypeNormal, reasonChangeBegan, "begins to change this node")
	h.pod("shop", "db-0", "u1", corev1.EventTypeNormal, reasonEvicted, "evicted this pod, 100%d", false)
	for namespace, want := range map[string]string{
		metav1.NamespaceDefault: "Node n1 n1 ChangeBegan migration m begins to change this node, of Migration m",
		"shop":                  "Pod db-0 u1 EvictedByChange migration m evicted this pod, 100%d, of Migration m",
	} {
		got := ""
		awaited(t, "there is an event in the namespace "+namespace, func() bool {
			list, err := admin.Typed.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				if e := &list.Items[i]; e.Related != nil {
					got = fmt.Sprintf("%s %s %s %s %s, of %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Name,
						e.InvolvedObject.UID, e.Reason, e.Message, e.Related.Kind, e.Related.Name)
				}
			}
			return got != ""
		})
		if got != want {
			t.Errorf("the event is %q, want %q", got, want)
		}
	}
}

// create makes the Migration m, whose plan has the hash "hash", and no pages.
func create(t *testing.T, client *kube.Client) {
	t.Helper()
	kubetest.Apply(t, client,
		unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "Migration",
			"metadata": map[string]any{"name": "m", "namespace": v1alpha1.Namespace},
			"spec":     map[string]any{"planHash": "hash", "inCluster": true}}})
}

// approve creates an approval of the plan "hash" of a migration, in the name of a user.
func approve(t *testing.T, client *kube.Client, migration, user string) error {
	t.Helper()
	_, err := client.Dynamic.Resource(resource("Approval")).Namespace(v1alpha1.Namespace).Create(t.Context(),
		manifest.Approval(migration, "hash", user, ""), metav1.CreateOptions{})
	return err
}

func change(t *testing.T, client *kube.Client, patch string) {
	t.Helper()
	if _, err := client.Dynamic.Resource(resource("Migration")).Namespace(v1alpha1.Namespace).Patch(t.Context(), "m",
		types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, client *kube.Client) v1alpha1.Migration {
	t.Helper()
	all, err := journal.List(t.Context(), client.Dynamic)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d migrations, %v", len(all), err)
	}
	return all[0]
}

func turns(t *testing.T, c *Controller) {
	t.Helper()
	if err := c.turn(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, client *kube.Client, kind, status, reason string) {
	t.Helper()
	m := read(t, client)
	for _, c := range m.Status.Conditions {
		if c.Type == kind {
			if string(c.Status) != status || c.Reason != reason {
				t.Errorf("%s is %s (%s: %s), want %s (%s)", kind, c.Status, c.Reason, c.Message, status, reason)
			}
			return
		}
	}
	t.Errorf("there is no condition %s", kind)
}

// awaited waits for something that takes the API server a moment; its bound only ends a test that has failed.
func awaited(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatal("not within a minute: " + what)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
