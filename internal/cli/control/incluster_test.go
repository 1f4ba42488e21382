package control

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// controlled is a cluster that holds a plan and its journal, and has a controller; the user is alice.
func controlled(t testing.TB, p *plan.Plan, records ...engine.Record) *kube.Client {
	t.Helper()
	client := holding(t, "", p)
	if len(records) > 0 {
		if err := journal.NewCluster(client.Dynamic, p.Name).Append(t.Context(), records...); err != nil {
			t.Fatal(err)
		}
	}
	typed := client.Typed.(*fake.Clientset)
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: manifest.ControllerName,
		Namespace: v1alpha1.Namespace}, Status: appsv1.DeploymentStatus{AvailableReplicas: 1}}
	if err := typed.Tracker().Add(controller); err != nil {
		t.Fatal(err)
	}
	typed.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
			UserInfo: authenticationv1.UserInfo{Username: "alice"}}}, nil
	})
	return client
}

func patchMigration(t *testing.T, client *kube.Client, name string, change map[string]any) {
	t.Helper()
	data, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	of := schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "migrations"}
	if _, err := client.Dynamic.Resource(of).Namespace(v1alpha1.Namespace).Patch(t.Context(), name,
		types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func inCluster(t *testing.T, client *kube.Client, name string) {
	t.Helper()
	patchMigration(t, client, name, map[string]any{"spec": map[string]any{"inCluster": true}})
}

// fakeController waits until a migration's spec is as it wants, and appends records.
func fakeController(t *testing.T, client *kube.Client, name string, wants func(v1alpha1.MigrationSpec) bool,
	records ...engine.Record) <-chan v1alpha1.MigrationSpec {
	t.Helper()
	seen := make(chan v1alpha1.MigrationSpec, 1)
	go func() {
		defer close(seen)
		for t.Context().Err() == nil {
			migration, err := journal.Get(t.Context(), client.Dynamic, name)
			if err == nil && wants(migration.Spec) {
				if err := journal.NewCluster(client.Dynamic, name).Append(t.Context(), records...); err != nil {
					t.Error(err)
				}
				seen <- migration.Spec
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return seen
}

func quietApp(out *bytes.Buffer, output string) *app.App {
	return &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: out, Err: out},
		Signals: &interrupt.Signals{Err: out}, Output: output}
}

// TestResumeInCluster: the controller gets a run that has paused, with an approval in the name of the user, and again
// without.
func TestResumeInCluster(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	records := clitest.Records(t, p, engine.Record{Event: engine.Paused}, engine.Record{Event: engine.Resumed},
		engine.Record{Event: engine.Paused}, engine.Record{Event: engine.Resumed},
		engine.Record{Event: engine.Finished, Result: engine.ResultDone})
	client := controlled(t, p, records[:2]...)
	patchMigration(t, client, p.Name, map[string]any{"spec": map[string]any{"desire": "Pause"}})

	var out bytes.Buffer
	code := exit.Code(&out, resumeInCluster(t.Context(), quietApp(&out, "json"), client, p.Name, &approval.Flags{}, ""))
	if code != exit.Usage || !strings.Contains(out.String(), "does not know which plan") {
		t.Errorf("an unknown plan: exit %d:\n%s", code, out.String())
	}
	if approvals, err := journal.Approvals(t.Context(), client.Dynamic, p.Name, p.Hash); err != nil ||
		len(approvals) > 0 {
		t.Errorf("%v, %v", approvals, err)
	}

	ctx, stop := context.WithCancel(t.Context())
	seen := fakeController(t, client, p.Name, func(s v1alpha1.MigrationSpec) bool { return s.Attempt == 1 },
		records[2:4]...)
	go func() { // the watching goes on through the pause
		<-seen
		time.Sleep(time.Second)
		stop()
	}()
	out.Reset()
	code = exit.Code(&out, resumeInCluster(ctx, quietApp(&out, "json"), client, p.Name,
		&approval.Flags{Expect: p.Hash}, ""))
	if code != exit.Interrupted || !strings.Contains(out.String(), "alice has approved it; 1 approval: alice\n") {
		t.Errorf("exit %d:\n%s", code, out.String())
	}

	last := fakeController(t, client, p.Name, func(s v1alpha1.MigrationSpec) bool { return s.Attempt == 2 },
		records[4:]...)
	t.Setenv("THESEUS_STATE_DIR", t.TempDir()) // another machine: the user's approval is in the cluster
	out.Reset()
	code = exit.Code(&out, resumeInCluster(t.Context(), quietApp(&out, "json"), client, p.Name, &approval.Flags{}, ""))
	if spec := <-last; code != exit.Done || !spec.InCluster || spec.Desire != v1alpha1.DesireRun ||
		strings.Contains(out.String(), "approved it") {
		t.Errorf("exit %d, %+v:\n%s", code, spec, out.String())
	}
}

// TestResumeSigned: the approval of a user who resumes can be signed. A plan is signed only if the user names it: not
// because this machine knows it, or because the cluster has an approval in that user's name. With a key that does not
// do, nothing is asked of the controller.
func TestResumeSigned(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	records := clitest.Records(t, p, engine.Record{Event: engine.Paused}, engine.Record{Event: engine.Resumed},
		engine.Record{Event: engine.Finished, Result: engine.ResultDone})
	client := controlled(t, p, records[:2]...)
	patchMigration(t, client, p.Name, map[string]any{"status": map[string]any{
		"approval": v1alpha1.ApprovalCount{Needed: 1, SignedOnly: true}}})
	if _, err := journal.Approve(t.Context(), client.Dynamic, p.Name, p.Hash, "alice", ""); err != nil {
		t.Fatal(err) // a forgery, which an API server before 1.30 admits
	}
	key, people := clitest.Key(t, "")
	locked, _ := clitest.Key(t, "secret")
	if err := approval.Keep(p); err != nil { // as `theseus apply` of another person on this machine does
		t.Fatal(err)
	}
	for _, test := range []struct {
		key, expect string
		code        int
		says        string
	}{
		{key, "", exit.Usage, "no plan is named for the approval of held"},
		{key + ".absent", p.Hash, exit.Failed, "hint: name the file of an SSH key: --sign"},
		{fileOfPlan(t, p), p.Hash, exit.Failed, "hint: give an SSH key"},
		{locked, p.Hash, exit.Usage, "hint: let the SSH agent sign"},
	} {
		var out bytes.Buffer
		code := exit.Code(&out, resumeInCluster(t.Context(), quietApp(&out, ""), client, p.Name,
			&approval.Flags{Expect: test.expect}, test.key))
		m, err := journal.Get(t.Context(), client.Dynamic, p.Name)
		if code != test.code || !strings.Contains(out.String(), test.says) || err != nil || m.Spec.InCluster {
			t.Errorf("%s: exit %d, want %d with %q, %+v, %v:\n%s", test.key, code, test.code, test.says, m, err,
				out.String())
		}
	}
	last := fakeController(t, client, p.Name, func(s v1alpha1.MigrationSpec) bool { return s.InCluster },
		records[2:]...)
	var out bytes.Buffer
	code := exit.Code(&out, resumeInCluster(t.Context(), quietApp(&out, "json"), client, p.Name,
		&approval.Flags{Expect: p.Hash}, key))
	<-last
	if code != exit.Done ||
		!strings.Contains(out.String(), "alice has approved it, with a signature; 1 approval: alice") ||
		strings.Contains(out.String(), "counts only signed") {
		t.Errorf("exit %d:\n%s", code, out.String())
	}
	list, err := client.Dynamic.Resource(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: manifest.Plural("Approval")}).Namespace(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	var by []string
	for _, one := range list.Items {
		text, _, _ := unstructured.NestedString(one.Object, "spec", "signature")
		if who, err := signed.Check([]byte(p.Hash), map[string][]byte{"s": []byte(text)}, people,
			time.Now()); err == nil {
			by = append(by, who...)
		}
	}
	if !slices.Equal(by, []string{"alice@example.com"}) {
		t.Errorf("signed by %q", by)
	}
}

// TestResumeUnsigned: a user who resumes without a key is told that the approval does not count; and with one, that
// nothing was signed, if a process runs the migration already.
func TestResumeUnsigned(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	records := clitest.Records(t, p, engine.Record{Event: engine.Paused}, engine.Record{Event: engine.Resumed})
	client := controlled(t, p, records[:2]...)
	patchMigration(t, client, p.Name, map[string]any{"status": map[string]any{
		"approval": v1alpha1.ApprovalCount{Needed: 1, SignedOnly: true}}})
	note := func(key string) string {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		var out bytes.Buffer
		a := quietApp(&out, "json")
		a.Err = clitest.Ending(&out, "note: ", stop)
		exit.Code(&out, resumeInCluster(ctx, a, client, p.Name, &approval.Flags{Expect: p.Hash}, key))
		return out.String()
	}
	if said := note(""); !strings.Contains(said,
		"note: the controller counts only signed approvals: theseus approve held --plan FILE --sign KEY\n") {
		t.Error(said)
	}
	inCluster(t, client, p.Name)
	if err := journal.NewCluster(client.Dynamic, p.Name).Append(t.Context(), records[2:]...); err != nil {
		t.Fatal(err)
	}
	lease, _, err := journal.Acquire(t.Context(), run.Leases(client), "theseus-controller@node-1/1")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context()) //nolint:errcheck // of a fake
	if said := note("key"); !strings.Contains(said,
		"note: nothing was signed: theseus approve held --plan FILE --sign KEY adds an approval\n") {
		t.Error(said)
	}
}

// TestResumeInClusterRefuses what the controller does not run, a cluster without one, and a run of another process.
func TestResumeInClusterRefuses(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p, hooked := clitest.Plan(t, nil), hookedPlan(t, "true")
	var out bytes.Buffer
	busy := controlled(t, p)
	lease, _, err := journal.Acquire(t.Context(), run.Leases(busy), "bob@laptop/1")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context()) //nolint:errcheck // of a fake
	for name, test := range map[string]struct {
		client *kube.Client
		says   string
	}{
		"hooks": {controlled(t, hooked),
			"runs commands that add and remove nodes, which the controller does not have"},
		"no controller": {holding(t, "", p), "hint: install the chart: helm install theseus charts/theseus"},
		"a laptop":      {busy, "bob@laptop/1 is running a migration"},
	} {
		out.Reset()
		code := exit.Code(&out, resumeInCluster(t.Context(), quietApp(&out, ""), test.client, "held",
			&approval.Flags{Expect: p.Hash}, ""))
		if code != exit.Failed || !strings.Contains(out.String(), test.says) ||
			!strings.Contains(out.String(), "hint: ") {
			t.Errorf("%s: exit %d, %q is not in:\n%s", name, code, test.says, out.String())
		}
		if migration, err := journal.Get(t.Context(), test.client.Dynamic, "held"); err != nil ||
			migration.Spec.InCluster {
			t.Errorf("%s: %+v, %v", name, migration, err)
		}
	}
}

// TestRollbackInCluster: the controller rolls back what it has, and the command shows that until the end.
func TestRollbackInCluster(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	records := clitest.Records(t, p,
		engine.Record{Event: engine.Finished, Result: engine.ResultNeedsPerson, Error: "it broke"},
		engine.Record{Event: engine.Resumed}, engine.Record{Event: engine.RollingBack, Result: engine.ResultAsked,
			Error: "the operator requested it"},
		engine.Record{Event: engine.Finished, Result: engine.ResultRolledBack})
	client := controlled(t, p, records[:2]...)
	inCluster(t, client, p.Name)
	seen := fakeController(t, client, p.Name,
		func(s v1alpha1.MigrationSpec) bool { return s.Desire == v1alpha1.DesireRollback }, records[2:]...)
	var out bytes.Buffer
	code := exit.Code(&out, takeOver(t.Context(), quietApp(&out, "json"), client, p.Name, v1alpha1.DesireRollback,
		mirror.Access{}, &approval.Flags{}, new(execute.Outward), new(execute.Writes), false))
	if spec := <-seen; code != exit.Stopped || !spec.InCluster || spec.Attempt != 1 ||
		!strings.Contains(out.String(), "asked the controller in the cluster to roll held back") {
		t.Errorf("exit %d, %+v:\n%s", code, spec, out.String())
	}
}

// TestTakeBack: the controller keeps the lock until its action is done, and may write records meanwhile.
func TestTakeBack(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	records := clitest.Records(t, p, engine.Record{Event: engine.StepBegan, Step: p.Steps[0].ID},
		engine.Record{Event: engine.Intended, Step: p.Steps[0].ID, Action: "a"})
	client := controlled(t, p, records[:2]...)
	inCluster(t, client, p.Name)
	lease, _, err := journal.Acquire(t.Context(), run.Leases(client), "theseus-controller@node-1/1")
	if err != nil {
		t.Fatal(err)
	}
	given := fakeController(t, client, p.Name, func(s v1alpha1.MigrationSpec) bool { return !s.InCluster },
		records[2:]...)
	go func() {
		<-given
		time.Sleep(5 * time.Second)                       // as an action takes, and longer than a renewal of the lock
		lease.Release(context.WithoutCancel(t.Context())) //nolint:errcheck // of a fake
	}()
	var out bytes.Buffer
	now, head, err := takeBack(t.Context(), quietApp(&out, ""), client, p.Name, records[:2], records[1].Chain)
	if err != nil || len(now) != 3 || head != records[2].Chain {
		t.Errorf("%d records, head %s, %v", len(now), head, err)
	}
	if want := "waiting until theseus-controller@node-1/1 has finished its current action and releases " +
		"held\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in:\n%s", want, out.String())
	}
	if _, _, err := takeBack(t.Context(), quietApp(&out, ""), client, p.Name, records[:2],
		records[0].Chain); err == nil {
		t.Error("a journal with another head was taken")
	}
}

// TestPauseWaiting: a migration that the controller has is paused before it begins.
func TestPauseWaiting(t *testing.T) {
	p := clitest.Plan(t, nil)
	client := controlled(t, p)
	inCluster(t, client, p.Name)
	var out bytes.Buffer
	if err := asking.Pause(t.Context(), quietApp(&out, ""), client, p.Name); err != nil ||
		!strings.Contains(out.String(), "asked the controller in the cluster, which runs held, to pause") {
		t.Errorf("%v: %s", err, out.String())
	}
	if migration, err := journal.Get(t.Context(), client.Dynamic, p.Name); err != nil ||
		migration.Spec.Desire != v1alpha1.DesirePause {
		t.Errorf("%+v, %v", migration, err)
	}
}

// TestStatusWithoutController: status says why the controller does not run, and what to do: the API server refuses its
// pods, or the chart is not installed.
func TestStatusWithoutController(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	client := controlled(t, p)
	inCluster(t, client, p.Name)
	says := func(output string, wants ...string) {
		t.Helper()
		var out bytes.Buffer
		if err := status(t.Context(), quietApp(&out, output), client, p.Name); err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in:\n%s", want, out.String())
			}
		}
	}
	apps := client.Typed.AppsV1().Deployments(v1alpha1.Namespace)
	down := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace,
		Name: manifest.ControllerName}}
	if _, err := apps.Update(t.Context(), down, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	says("", "but does not run it now: no pod of the controller is available: Deployment theseus-system/"+
		"theseus-controller: ", "\nhint: kubectl describe pods -n theseus-system")
	says("json", `"controllerError":"no pod of the controller is available`)
	if err := apps.Delete(t.Context(), manifest.ControllerName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	says("", "but does not run it now: this cluster has no controller", "\nhint: install the chart")
}

// TestStatusInCluster: status says that the controller has a migration, and what it waits for.
func TestStatusInCluster(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	client := controlled(t, p)
	inCluster(t, client, p.Name)
	patchMigration(t, client, p.Name,
		map[string]any{"status": map[string]any{"conditions": []metav1.Condition{{Type: v1alpha1.ConditionApproved,
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTooFewApprovals, Message: "1 of 2 approvals",
			LastTransitionTime: metav1.Now()}}, "approval": v1alpha1.ApprovalCount{Needed: 2, Counted: 1,
			SignedOnly: true, ApprovedBy: []string{"ann@example.com"}}}})
	for output, wants := range map[string][]string{
		"": {"waits: Approved=False (TooFewApprovals): 1 of 2 approvals\n",
			"the controller in the cluster has it, but does not run it now"},
		"json": {`"inCluster":true`, `"conditions":[{`, `"reason":"TooFewApprovals"`,
			`"approval":{"needed":2,"counted":1,"signedOnly":true,"approvedBy":["ann@example.com"]}`},
	} {
		var out bytes.Buffer
		if err := status(t.Context(), quietApp(&out, output), client, p.Name); err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in:\n%s", want, out.String())
			}
		}
	}
}
