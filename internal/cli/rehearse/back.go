package rehearse

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
)

// back is what rolling the change back from its middle showed.
type back struct {
	Migration string `json:"migration"`
	// From is the title of the last step that was done before the rollback, the Done-th of all Steps.
	From   string `json:"from"`
	Done   int    `json:"done"`
	Steps  int    `json:"steps"`
	Passed bool   `json:"passed"`
	Why    string `json:"why"`

	// asked says that the run was rolled back, and because it was asked to.
	asked   bool
	phase   engine.Phase
	leaked  bool
	records []engine.Record
}

// turn is how many steps of a plan are done before it is rolled back: until the wave with which half of the waves
// before the point of no return are done. It is 0 if there is no wave before, or nothing between it and the point of no
// return.
func turn(p *plan.Plan) int {
	before := len(p.Steps)
	last := map[string]int{} // by wave, how many steps are done when it is
	var waves []string
	for i := range p.Steps {
		if p.Steps[i].NoReturn {
			before = i
			break
		}
		if wave := p.Steps[i].Wave; wave != "" {
			if last[wave] == 0 {
				waves = append(waves, wave)
			}
			last[wave] = i + 1
		}
	}
	if len(waves) == 0 {
		return 0
	}
	if n := last[waves[(len(waves)-1)/2]]; n < before {
		return n
	}
	return 0
}

// thereAndBack runs a plan on the copy, and has it rolled back after n steps. Meanwhile it does other things, with a
// context that ends when a person interrupts the run, and one that ends with the run. An error is of a run that did not
// end rolled back; the result is nil if the run did not begin.
func thereAndBack(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, n int, w *watcher,
	meanwhile ...func(working, running context.Context)) (*back, error) {
	working, cut := context.WithCancel(ctx)
	defer cut()
	watching, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { askBack(watching, client, p.Name, p.Steps[n-1].ID) })
	for _, do := range meanwhile {
		all.Go(func() { do(working, watching) })
	}
	end := carryOut(ctx, a, client, p, w)
	stop()
	if interrupted, ok := errors.AsType[*exit.Error](end); ok && interrupted.Code == exit.Interrupted {
		cut()
	}
	all.Wait()
	b := &back{Migration: p.Name, Steps: len(p.Steps)}
	dir, err := statedir.Of(p.Name)
	if err == nil {
		err = a.Patiently(context.WithoutCancel(ctx), app.Glance, func(ctx context.Context) error {
			return b.judge(ctx, client, p, dir)
		})
	}
	switch {
	case err != nil && end != nil:
		return nil, end
	case err != nil:
		return nil, err
	case b.Passed:
		return b, nil
	case b.asked || end == nil:
		end = exit.Fail(exit.Failed, "`theseus report "+p.Name+" -o report.html`, with the scratch cluster's "+
			"--context, shows every path", "the rollback halfway did not pass: %s", b.Why)
	}
	return b, end
}

// askBack asks for the rollback of a migration when a step is done. It ends with ctx.
func askBack(ctx context.Context, client *kube.Client, name, step string) {
	done := func(state *engine.State) bool {
		at := state.Find(step)
		return at != nil && at.Done
	}
	for await(ctx, client, name, done) {
		if journal.SetDesire(ctx, client.Dynamic, name, v1alpha1.DesireRollback) == nil {
			return
		}
	}
}

// await waits until the journal of a migration shows something; false if ctx ended before.
func await(ctx context.Context, client *kube.Client, name string, shows func(*engine.State) bool) bool {
	for outage.Sleep(ctx, time.Second/5) == nil {
		records, err := journal.NewCluster(client.Dynamic, name).Records(ctx)
		if err != nil {
			continue // not begun yet, or the API server is away
		}
		if state, err := engine.Replay(records); err == nil && shows(&state) {
			return true
		}
	}
	return false
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
	b.records = input.Records
	b.decide(p, state, &model)
	return nil
}

// decide says whether a run was rolled back as it was asked to, without a loss over the limit, and measured.
func (b *back) decide(p *plan.Plan, state engine.State, model *report.Model) {
	for i := range p.Steps { // in the order of the plan: those that are undone were done
		if at := state.Find(p.Steps[i].ID); at != nil && at.Done {
			b.From, b.Done = p.Steps[i].Title, i+1
		}
	}
	b.Why, b.asked = model.Verdict.Title, state.Phase == engine.PhaseRolledBack && state.Asked
	b.phase, b.leaked = state.Phase, model.Totals.Leaked > 0
	switch {
	case state.Phase == engine.PhaseDone:
		b.Why = "the change was done before it could be rolled back: " + b.Why
	case !b.asked:
		if model.Verdict.Why != "" {
			b.Why += ": " + model.Verdict.Why
		}
	case model.Totals.Sent == 0 || len(model.Verdict.Missing) > 0:
		b.Why += "; not measured: " + strings.Join(model.Verdict.Missing, ", ")
	case model.Totals.Restarts > 0: // the title has them
	default:
		b.Passed = model.Verdict.Level == report.Stopped // a loss over the limit makes it worse
	}
}

// String is the way back in a line.
func (b *back) String() string {
	what := "the rollback halfway"
	if b.asked {
		what = fmt.Sprintf("rolled back after step %d of %d (%s)", b.Done, b.Steps, b.From)
	}
	return fmt.Sprintf("%s: %s; `theseus report %s` shows that run", what, b.Why, b.Migration)
}
