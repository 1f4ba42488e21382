package approve

import (
	"bytes"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

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
	config := clustertest.ControlPlane(t, program, clustertest.Options{Users: []string{"ann", "eve"}})
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
	tails(t, admin, as("eve"), p)
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
			ID: "a/undo", Op: step.Patch, Title: "back", Patch: []byte(`{"metadata":{"labels":{"x":null}}}`)}},
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
