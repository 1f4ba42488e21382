package asking

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/web"
)

// The names of the actions.
const (
	ActPause    = "pause"
	ActResume   = "resume"
	ActRollback = "rollback"
	ActApprove  = "approve"
)

// Actions are the live page's actions on a migration, carried out with a client of the person who asks.
type Actions struct {
	Client *kube.Client
	Name   string
	// Here is true on the person's own machine (Ask).
	Here bool
	// Only are the actions that the page offers; nil means all.
	Only []string
}

// All are the names of all actions.
func All() []string { return []string{ActPause, ActResume, ActRollback, ActApprove} }

// Names implements web.Actions.
func (k *Actions) Names() []string {
	if k.Only != nil {
		return k.Only
	}
	return All()
}

// desires are what actions ask a migration for.
var desires = map[string]v1alpha1.Desire{ActPause: v1alpha1.DesirePause, ActResume: v1alpha1.DesireRun,
	ActRollback: v1alpha1.DesireRollback}

// Question implements web.Actions. The commands of the same names ask for the name of the target network, too.
func (k *Actions) Question(ctx context.Context, action string) (web.Question, error) {
	a, _ := silent()
	if action == ActApprove {
		p, _, records, err := k.approvable(ctx, a)
		if err != nil {
			return web.Question{}, err
		}
		b := &strings.Builder{}
		err = approval.Describe(b, p, records)
		return web.Question{Text: b.String(), Word: p.To(), Plan: p.Hash}, err
	}
	text, p, err := Describe(ctx, a, k.Client, k.Name, desires[action])
	if err != nil {
		return web.Question{}, err
	}
	if action == ActPause {
		return web.Question{Text: "The run stops after its current action. All pods stay connected.", Plan: p.Hash}, nil
	}
	return web.Question{Text: text, Word: p.To(), Plan: p.Hash}, nil
}

// Do implements web.Actions.
func (k *Actions) Do(ctx context.Context, action, hash string) (string, error) {
	a, said := silent()
	var err error
	switch action {
	case ActPause:
		err = Pause(ctx, a, k.Client, k.Name)
	case ActApprove:
		err = k.approve(ctx, a, hash)
	default:
		err = Ask(ctx, a, k.Client, k.Name, desires[action], hash, k.Here)
	}
	return strings.TrimSpace(said.String()), err
}

// approvable is the plan that a person may approve on the page: one that `theseus approve` takes, too, and that needs
// no signature.
func (k *Actions) approvable(ctx context.Context, a *app.App) (*plan.Plan, *v1alpha1.Migration,
	[]engine.Record, error) {
	p, migration, records, err := Load(ctx, a, k.Client, k.Name)
	if err == nil {
		err = Approvable(ctx, a, k.Client, p, records)
	}
	if err == nil && incluster.ApprovedWith(migration) != "" {
		err = exit.Fail(exit.NeedsPerson, signHere(migration),
			"the controller counts only signed approvals, and this page has no key")
	}
	return p, migration, records, err
}

func (k *Actions) approve(ctx context.Context, a *app.App, hash string) error {
	p, migration, _, err := k.approvable(ctx, a)
	if err != nil {
		return err
	}
	if _, err := (&approval.Flags{Expect: hash}).Named(p); err != nil {
		return err
	}
	done, err := incluster.Approve(ctx, a, k.Client, p, "")
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s (hash %s): %s\n", p.Name, p.Hash, done)
	if !migration.Spec.InCluster {
		fmt.Fprintf(a.Out, "the controller does not run %s yet: `theseus resume %[1]s --in-cluster` lets it\n", p.Name)
	}
	return nil
}

// signHere is how a person approves a plan that the page cannot approve.
func signHere(migration *v1alpha1.Migration) string {
	return "on a machine that has your SSH key, run: theseus plan show --migration " + migration.Name +
		" -o plan.yaml && theseus approve " + migration.Name + " --plan plan.yaml " + journal.SignsWith
}

// Waits are what the live page says a migration waits for. While only signed approvals are missing, it says before a
// person tries that it cannot make them.
func Waits(migration *v1alpha1.Migration) []string {
	lines := incluster.Waits(migration)
	if incluster.ApprovedWith(migration) != "" && incluster.Unapproved(migration) != nil {
		lines = append(lines, "a signed approval, which this page cannot make: "+signHere(migration))
	}
	return lines
}

// Approvable refuses the approval of a migration that has ended, and of a plan that is invalid or of another cluster.
func Approvable(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, records []engine.Record) error {
	state, err := engine.Replay(records)
	switch {
	case err != nil:
		return err
	case state.Over():
		return migrations.Over(p.Name, state)
	}
	if err := plan.Verify(p); err != nil {
		return engine.NeedsPerson("do not approve it: find out who wrote it, and with which version of theseus",
			"the plan of %s is invalid: %w", p.Name, err)
	}
	return approval.SameCluster(ctx, a, client, p)
}

// silent is the app of a command without a viewer: it has no terminal, and its words are kept.
func silent() (*app.App, *bytes.Buffer) {
	said := &bytes.Buffer{}
	return &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: said, Err: said}}, said
}
