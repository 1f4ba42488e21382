package control

import (
	"bytes"
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// desired is what a migration is asked for.
func desired(t *testing.T, client *kube.Client, name string) v1alpha1.Desire {
	t.Helper()
	migration, err := journal.Get(t.Context(), client.Dynamic, name)
	if err != nil {
		t.Fatal(err)
	}
	return migration.Spec.Desire
}

// TestAskController: the controller is asked, and only for the plan that the person has seen. To continue approves
// nothing: that is an act of its own.
func TestAskController(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	records := clitest.Records(t, p, engine.Record{Event: engine.StepBegan, Step: p.Steps[0].ID},
		engine.Record{Event: engine.Paused})
	client := controlled(t, p, records...)
	inCluster(t, client, p.Name)
	patchMigration(t, client, p.Name, map[string]any{"spec": map[string]any{"desire": "Pause"}})
	var out bytes.Buffer
	a := quietApp(&out, "")
	if code := exit.Code(&out, asking.Ask(t.Context(), a, client, p.Name, v1alpha1.DesireRun, "another",
		true)); code != exit.NeedsPerson || desired(t, client, p.Name) != v1alpha1.DesirePause {
		t.Errorf("another plan: exit %d\n%s", code, out.String())
	}
	status := func(approved metav1.ConditionStatus) {
		t.Helper()
		patchMigration(t, client, p.Name, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
			"type": v1alpha1.ConditionApproved, "status": string(approved), "reason": v1alpha1.ReasonTooFewApprovals,
			"message": "1 of 2 approvals"}}}})
	}
	for _, here := range []bool{true, false} {
		patchMigration(t, client, p.Name, map[string]any{"spec": map[string]any{"desire": "Pause"}})
		status(metav1.ConditionFalse)
		out.Reset()
		if code := exit.Code(&out, asking.Ask(t.Context(), a, client, p.Name, v1alpha1.DesireRun, p.Hash,
			here)); code != exit.NeedsPerson || desired(t, client, p.Name) != v1alpha1.DesirePause ||
			!strings.HasPrefix(out.String(),
				"error: the plan of held is not approved: 1 of 2 approvals\nhint: approve it first") {
			t.Errorf("without an approval: exit %d\n%s", code, out.String())
		}
		status(metav1.ConditionTrue)
		if err := asking.Ask(t.Context(), a, client, p.Name, v1alpha1.DesireRun, p.Hash, here); err != nil ||
			desired(t, client, p.Name) != v1alpha1.DesireRun {
			t.Errorf("resume: %v\n%s", err, out.String())
		}
	}
	if approvals, err := journal.Approvals(t.Context(), client.Dynamic, p.Name, p.Hash); err != nil ||
		len(approvals) != 0 {
		t.Errorf("approvals %+v, %v", approvals, err)
	}
	if err := asking.Ask(t.Context(), a, client, p.Name, v1alpha1.DesireRollback, p.Hash, true); err != nil ||
		desired(t, client, p.Name) != v1alpha1.DesireRollback {
		t.Errorf("rollback: %v\n%s", err, out.String())
	}
	text, described, err := asking.Describe(t.Context(), a, client, p.Name, v1alpha1.DesireRollback)
	if err != nil || described.Hash != p.Hash ||
		!strings.HasPrefix(text, "Undoes every step that was done, newest first.\nheld: ") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestPageCannotSign: where only signed approvals count, the page says so before a person acts, with the command to
// run, and neither asks for an approval nor makes one.
func TestPageCannotSign(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	client := controlled(t, p)
	inCluster(t, client, p.Name)
	const command = "theseus plan show --migration held -o plan.yaml && " +
		"theseus approve held --plan plan.yaml --sign KEY"
	for _, signedOnly := range []bool{true, false} {
		patchMigration(t, client, p.Name, map[string]any{"status": map[string]any{
			"approval": v1alpha1.ApprovalCount{Needed: 1, SignedOnly: signedOnly},
			"conditions": []any{map[string]any{"type": v1alpha1.ConditionApproved, "status": "False",
				"reason": v1alpha1.ReasonTooFewApprovals, "message": "0 of 1"}}}})
		m, err := journal.Get(t.Context(), client.Dynamic, p.Name)
		if err != nil {
			t.Fatal(err)
		}
		waits := asking.Waits(m)
		if says := strings.Contains(strings.Join(waits, "\n"), "a signed approval, which this page cannot make: on a "+
			"machine that has your SSH key, run: "+command); says != signedOnly || waits[0] !=
			"Approved=False (TooFewApprovals): 0 of 1" {
			t.Errorf("signed only: %t: it waits for %q", signedOnly, waits)
		}
		page := &asking.Actions{Client: client, Name: p.Name}
		_, asked := page.Question(t.Context(), asking.ActApprove)
		_, done := page.Do(t.Context(), asking.ActApprove, p.Hash)
		for _, err := range []error{asked, done} {
			if (err != nil) != signedOnly || signedOnly && (!strings.HasSuffix(exit.HintOf(err), command) ||
				!strings.Contains(err.Error(), "counts only signed approvals, and this page has no key")) {
				t.Errorf("signed only: %t: %v; %s", signedOnly, err, exit.HintOf(err))
			}
		}
		approvals, err := journal.Approvals(t.Context(), client.Dynamic, p.Name, p.Hash)
		if err != nil || (len(approvals) == 0) != signedOnly {
			t.Errorf("signed only: %t: %+v, %v", signedOnly, approvals, err)
		}
	}
	m := &v1alpha1.Migration{}
	m.Status.Approval = &v1alpha1.ApprovalCount{Needed: 1, Counted: 1, SignedOnly: true, ApprovedBy: []string{"ann"}}
	if waits := asking.Waits(m); len(waits) > 0 {
		t.Errorf("an approved plan waits for %q", waits)
	}
}

// TestAskNoOnlooker: a process that only looks is not asked to roll back, nor to pause: it would not.
func TestAskNoOnlooker(t *testing.T) {
	asksNone(t, func(client *kube.Client) {
		lease, _, err := journal.Acquire(t.Context(), run.Leases(client), journal.Looker())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lease.Release(context.Background()) }) //nolint:errcheck // of a fake
	})
}

// TestAskNoDead: a process that ended without releasing the lock is not asked either, nor said to run the migration.
func TestAskNoDead(t *testing.T) {
	asksNone(t, func(client *kube.Client) {
		if _, err := run.Leases(client).Create(t.Context(), clustertest.DeadLease(),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

// asksNone demands that no process is asked while one has the lock that runs no migration.
func asksNone(t *testing.T, lock func(*kube.Client)) {
	t.Helper()
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p, ctx := clitest.Plan(t, nil), t.Context()
	client := controlled(t, p, clitest.Records(t, p, engine.Record{Event: engine.StepBegan, Step: p.Steps[0].ID})...)
	lock(client)
	var out bytes.Buffer
	a := quietApp(&out, "")
	if code := exit.Code(&out, asking.Ask(ctx, a, client, p.Name, v1alpha1.DesireRollback, p.Hash,
		true)); code != exit.Failed || !strings.Contains(out.String(), "no process runs held") {
		t.Errorf("exit %d\n%s", code, out.String())
	}
	out.Reset()
	if err := asking.Pause(ctx, a, client, p.Name); err != nil ||
		!strings.Contains(out.String(), "no process runs held") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := status(ctx, a, client, p.Name); err != nil || !strings.Contains(out.String(), ", interrupted\n") ||
		!strings.Contains(out.String(), "no process runs it: ") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if desire := desired(t, client, p.Name); desire != v1alpha1.DesireRun {
		t.Errorf("it was asked to %s", desire)
	}
}

// TestStatusOfAGuard: that a guard measures has no cause.
func TestStatusOfAGuard(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	client := controlled(t, p, clitest.Records(t, p, engine.Record{Event: engine.StepBegan, Step: p.Steps[0].ID},
		engine.Record{Event: engine.StepDone, Step: p.Steps[0].ID},
		engine.Record{Event: engine.Paused, Result: engine.ResultMeasuring,
			Error: "the probes measure until `theseus guard stop`"})...)
	var out bytes.Buffer
	if err := status(t.Context(), quietApp(&out, ""), client, p.Name); err != nil ||
		!strings.Contains(out.String(), ", measuring\n") || strings.Contains(out.String(), "cause: ") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestAskHolder: the process that runs a migration is asked. Where none does, the command to run is named, and nothing
// is changed.
func TestAskHolder(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	client := controlled(t, p, clitest.Records(t, p, engine.Record{Event: engine.StepBegan, Step: p.Steps[0].ID})...)
	for desire, hint := range map[v1alpha1.Desire]string{v1alpha1.DesireRun: "theseus resume held\n",
		v1alpha1.DesireRollback: "theseus rollback held\n"} {
		var out bytes.Buffer
		code := exit.Code(&out, asking.Ask(t.Context(), quietApp(&out, ""), client, p.Name, desire, p.Hash, true))
		if code != exit.Failed || !strings.HasPrefix(out.String(),
			"error: no process runs held\nhint: ") || !strings.HasSuffix(out.String(), hint) {
			t.Errorf("%s: exit %d\n%s", desire, code, out.String())
		}
	}
	lease, ctx, err := journal.Acquire(t.Context(), run.Leases(client), "ada@bastion-1/7")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context()) //nolint:errcheck
	var out bytes.Buffer
	a := quietApp(&out, "")
	if code := exit.Code(&out, asking.Ask(ctx, a, client, p.Name, v1alpha1.DesireRun, p.Hash,
		true)); code != exit.Failed || !strings.Contains(out.String(), "ada@bastion-1/7 runs held already") {
		t.Errorf("it runs: exit %d\n%s", code, out.String())
	}
	if err := asking.Pause(ctx, a, client, p.Name); err != nil || desired(t, client, p.Name) != v1alpha1.DesirePause {
		t.Error(err)
	}
	if err := asking.Ask(ctx, a, client, p.Name, v1alpha1.DesireRun, p.Hash, true); err != nil ||
		desired(t, client, p.Name) != v1alpha1.DesireRun {
		t.Errorf("before it has paused: %v", err)
	}
	if err := asking.Ask(ctx, a, client, p.Name, v1alpha1.DesireRollback, p.Hash, true); err != nil ||
		desired(t, client, p.Name) != v1alpha1.DesireRollback {
		t.Error(err)
	}
	if want := "asked ada@bastion-1/7, which runs held, to roll back; "; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in:\n%s", want, out.String())
	}
}
