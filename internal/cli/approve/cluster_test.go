package approve

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestAPIServer: with a real API server, a person with the role of `theseus rights approve` approves, and one without
// it is told how to get it. A journal that grows there is read record by record.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "theseus approve with a real API server")
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	config := clustertest.ControlPlane(t, program, clustertest.Options{Users: []string{"ann", "eve", tool}})
	as := kubetest.Users(t, config)
	admin := as("token")
	if err := run.Prepare(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	objects := manifest.ApprovalPolicy()
	for duty, user := range map[kube.Duty]string{kube.Approve: "ann", kube.Look: "eve"} {
		roles, err := kube.Roles(duty, "", nil, []kube.Subject{{Kind: rbacv1.UserKind, Name: user}})
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, roles...)
	}
	kubetest.Apply(t, admin, objects...)
	knows(t, as("ann"), v1alpha1.VerbApprove, "Migration")
	knows(t, as("eve"), "get", "Migration")
	p := clitest.Plan(t, admin)
	begins(t, admin, p)
	for _, test := range []struct {
		user string
		code int
		says string
	}{
		{"ann", exit.Done, "ann has approved it; 1 approval: ann\n"},
		{"ann", exit.Done, "ann had approved it before; 1 approval: ann\n"},
		{"eve", exit.Failed, "hint: grant the right: theseus rights approve --for user:eve | kubectl apply -f -"},
	} {
		var out bytes.Buffer
		a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}}
		code := exit.Code(&out, approve(t.Context(), a, as(test.user), p.Name, &approval.Flags{Expect: p.Hash}, ""))
		if code != test.code || !strings.Contains(out.String(), test.says) {
			t.Errorf("%s: exit %d, want %d with %q:\n%s", test.user, code, test.code, test.says, out.String())
		}
	}
	fromGit(t, admin, as, p)
	tails(t, admin, as("eve"), p)
}

// tool is what applies manifests from Git.
const tool = "system:serviceaccount:argocd:argocd-application-controller"

// knows waits until the API server's authorizer, which learns of new roles by a watch, allows a user a verb on
// objects of a kind.
func knows(t *testing.T, c *kube.Client, verb, kind string) {
	t.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: v1alpha1.Namespace, Verb: verb,
			Group: v1alpha1.Group, Resource: manifest.Plural(kind)}}}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		answer, err := c.Typed.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review,
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status.Allowed {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the API server does not learn within a minute that the verb %s is allowed", verb)
		}
	}
}

// fromGit: the manifest of an approval counts once the user that it names applies it, and nobody else can. A tool
// applies the same manifest again and again, and cannot make another approval of it.
func fromGit(t *testing.T, admin *kube.Client, as func(string) *kube.Client, p *plan.Plan) {
	t.Helper()
	var printed, said bytes.Buffer
	a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &printed, Err: &said}, Output: "json"}
	if err := write(t.Context(), a, as("ann"), p.Name, &approval.Flags{Expect: p.Hash}, "",
		"serviceaccount:argocd/argocd-application-controller"); err != nil {
		t.Fatal(err)
	}
	applies := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"approvals"},
		Verbs: []string{"create", "get", "patch"}}
	both := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "eve"}, {Kind: rbacv1.UserKind, Name: tool}}
	if _, err := admin.Typed.RbacV1().Roles(v1alpha1.Namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "applies"}, Rules: []rbacv1.PolicyRule{applies}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Typed.RbacV1().RoleBindings(v1alpha1.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "applies"}, Subjects: both,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "applies"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, subject := range both {
		knows(t, as(subject.Name), "patch", "Approval")
	}
	apply := func(user, text string) error {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		_, err := as(user).Dynamic.Resource(schema.GroupVersionResource{Group: v1alpha1.Group,
			Version: v1alpha1.Version, Resource: manifest.Plural("Approval")}).Namespace(v1alpha1.Namespace).Apply(
			t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "git", Force: true})
		return err
	}
	refused := func(user, text, says string) {
		t.Helper()
		if err := apply(user, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s applies the manifest: %v, want %q", user, err, says)
		}
	}
	refused("eve", printed.String(), `user "eve" may not approve in the name of "`+tool+`"`)
	refused(tool, printed.String(), `has no permission for the verb approve`)
	roles, err := kube.Roles(kube.Approve, "", nil, []kube.Subject{{Kind: rbacv1.ServiceAccountKind,
		Namespace: "argocd", Name: "argocd-application-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range roles { // ann has her own bindings of these names
		if strings.HasSuffix(roles[i].GetKind(), "Binding") {
			roles[i].SetName(roles[i].GetName() + "-from-git")
		}
	}
	kubetest.Apply(t, admin, roles...)
	knows(t, as(tool), v1alpha1.VerbApprove, "Migration")
	if err = apply(tool, printed.String()); err == nil {
		err = apply(tool, printed.String()) // again
	}
	if err != nil {
		t.Fatal(err)
	}
	refused(tool, strings.Replace(printed.String(), p.Hash, "another", 1), "the spec of an approval never changes")
	all, err := journal.Approvals(t.Context(), admin.Dynamic, p.Name, p.Hash)
	if err != nil || len(all) != 2 || all[0].Spec.User != tool && all[1].Spec.User != tool {
		t.Errorf("%+v, %v", all, err)
	}
}

// begins writes the plan for the controller, which the cluster does not have.
func begins(t *testing.T, admin *kube.Client, p *plan.Plan) {
	t.Helper()
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}}
	if code := exit.Code(&out, incluster.Available(t.Context(), a, admin)); code != exit.Failed ||
		!strings.Contains(out.String(), "hint: install the chart: helm install theseus") {
		t.Errorf("exit %d:\n%s", code, out.String())
	}
	if err := incluster.Begin(t.Context(), a, admin, p); err != nil {
		t.Fatal(err)
	}
	holder, err := journal.Holding(t.Context(), run.Leases(admin), time.Time{}, func(string) {})
	if err != nil || holder != nil {
		t.Errorf("the lock is held: %v, %v", holder, err)
	}
	if migration, err := journal.Get(t.Context(), admin.Dynamic, p.Name); err != nil || !migration.Spec.InCluster ||
		migration.Spec.PlanHash != p.Hash {
		t.Errorf("%+v, %v", migration, err)
	}
}

// tails reads a journal as a person who may look, while it is written.
func tails(t *testing.T, admin, reader *kube.Client, p *plan.Plan) {
	t.Helper()
	writer, tail := journal.NewCluster(admin.Dynamic, p.Name), journal.NewTail(reader.Dynamic, p.Name)
	head := p.Hash
	for i, r := range []engine.Record{{Event: engine.Started,
		Data: []byte(`{"plan":"` + p.Hash + `","theseus":"v0","steps":1}`)},
		{Event: engine.StepBegan, Step: "s"}, {Event: engine.Intended, Step: "s", Action: "a", Inverse: &step.Action{
			ID: "a/undo", Do: step.Patch{Merge: []byte(`{"metadata":{"labels":{"x":null}}}`)}, Title: "back"}},
		{Event: engine.Paused}} {
		r.Seq, r.At = i+1, time.Date(2026, 1, 2, 3, 4, i, 5000, time.UTC)
		var err error
		if r.Chain, err = engine.Link(head, r); err != nil {
			t.Fatal(err)
		}
		head = r.Chain
		if err := writer.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		fresh, err := tail.Next(t.Context())
		if err != nil || len(fresh) != 1 || fresh[0].Seq != i+1 || tail.State().Head != head {
			t.Errorf("record %d: read %d, %v", i+1, len(fresh), err)
		}
	}
	if tail.State().Phase != engine.PhasePaused {
		t.Errorf("the state is %s", tail.State().Phase)
	}
}
