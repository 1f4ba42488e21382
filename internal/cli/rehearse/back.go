package rehearse

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

// back is what rolling the change back from its middle showed.
type back struct {
	Migration string `json:"migration"`
	// From is the title of the last step before the rollback, the Done-th of all Steps.
	From   string `json:"from"`
	Done   int    `json:"done"`
	Steps  int    `json:"steps"`
	Passed bool   `json:"passed"`
	Why    string `json:"why"`
}

// turn is how many steps of a plan are done before it is rolled back: half of those before the point of no return.
func turn(p *plan.Plan) int {
	before := len(p.Steps)
	for i := range p.Steps {
		if p.Steps[i].NoReturn {
			before = i
			break
		}
	}
	return before / 2
}

// thereAndBack runs a plan on the copy, and has it rolled back when its middle is reached. An error is of a run that did not end so;
// the result is nil if the run did not begin.
func thereAndBack(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan) (*back, error) {
	n := turn(p)
	if n == 0 {
		return nil, nil
	}
	watching, stop := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		askBack(watching, client, p.Name, p.Steps[n-1].ID)
	}()
	end := carryOut(ctx, a, client, p)
	stop()
	<-asked
	b := &back{Migration: p.Name, From: p.Steps[n-1].Title, Done: n, Steps: len(p.Steps)}
	dir, err := statedir.Of(p.Name)
	if err == nil {
		err = a.Patiently(context.WithoutCancel(ctx), app.Glance, func(ctx context.Context) error { return b.judge(ctx, client, p, dir) })
	}
	switch {
	case err != nil && end != nil:
		return nil, end
	case err != nil:
		return nil, err
	case b.Passed:
		return b, nil
	case end == nil:
		end = exit.Fail(exit.Failed, "rehearse it without: --once", "%s", b.Why)
	}
	return b, end
}

// askBack asks for the rollback of a migration when a step is done. It ends with ctx.
func askBack(ctx context.Context, client *kube.Client, name, step string) {
	for outage.Sleep(ctx, time.Second/2) == nil {
		records, err := journal.NewCluster(client.Dynamic, name).Records(ctx)
		if err != nil {
			continue // not begun yet, or the API server is away
		}
		state, err := engine.Replay(records)
		if err != nil {
			continue
		}
		if at := state.Find(step); at != nil && at.Done && journal.SetDesire(ctx, client.Dynamic, name, v1alpha1.DesireRollback) == nil {
			return
		}
	}
}

// judge reads how the run ended.
func (b *back) judge(ctx context.Context, client *kube.Client, p *plan.Plan, dir string) error {
	input, err := run.ReportInput(ctx, client, p, dir, func(string) {})
	if err != nil {
		return err
	}
	state, err := engine.Replay(input.Records)
	if err != nil {
		return err
	}
	model := report.Build(input)
	b.Why = model.Verdict.Title
	switch {
	case state.Phase == engine.PhaseDone:
		b.Why = "the change was done before it could be rolled back from its middle: " + b.Why
	case state.Phase != engine.PhaseRolledBack || !state.Asked:
		if model.Verdict.Why != "" {
			b.Why += ": " + model.Verdict.Why
		}
	default: // a loss makes the level worse
		b.Passed = model.Verdict.Level == report.Stopped
	}
	return nil
}

// text is the way back in a line.
func (b *back) text(to io.Writer) error {
	_, err := fmt.Fprintf(to, "rolled back from its middle, after step %d of %d (%s): %s; `theseus report %s` shows that run\n", b.Done, b.Steps, printable.Line(b.From), printable.Line(b.Why), b.Migration)
	return err
}
