package execute

import (
	"context"
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/origin"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/mirrored"
)

// carryOut runs the engine, says how it ended, and turns that into the exit code.
func carryOut(ctx context.Context, a *app.App, r *run.Run) error {
	if r.Plan.Guarded != nil {
		return guard(ctx, a, r)
	}
	dir, err := statedir.Make(r.Plan.Name)
	if err != nil {
		return err
	}
	view := view.New(a, r.Plan)
	r.Dir, r.View = dir, view
	outcome, err := r.Execute(ctx)
	view.Close()
	if err != nil {
		return err
	}
	if a.Output != "json" && r.Plan.OnNodes() {
		if err := a.Patiently(context.WithoutCancel(ctx), app.Glance, func(ctx context.Context) error {
			return Summary(ctx, a, r.Client, r.Plan)
		}); err != nil {
			fmt.Fprintf(a.Err, "warning: no summary: %v\n", err)
		}
	}
	if r.Plan.Mirror != nil {
		if err := mirrorSummary(context.WithoutCancel(ctx), a, r, outcome); err != nil {
			return err
		}
	}
	if outcome.End == engine.EndDone {
		return nil
	}
	return exit.Fail(outcome.ExitCode(), outcome.Hint, "%s: %s", outcome.End, exit.Cause(outcome.Cause))
}

// Ready prepares the cluster and this machine for a plan that is about to begin: the folder of its state, Theseus' own
// objects (run.Prepare), and the plan as it was approved.
func Ready(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan) error {
	if _, err := statedir.Make(p.Name); err != nil { // before the cluster is changed
		return err
	}
	if err := a.Patiently(ctx, app.Begin,
		func(ctx context.Context) error { return run.Prepare(ctx, client) }); err != nil {
		return err
	}
	return approval.Keep(p)
}

// New is a run of this process, on this terminal; begins says that the cluster does not have the plan yet. access is
// how the mirror of the plan is reached, if flags override the plan.
func New(a *app.App, client *kube.Client, access mirror.Access, p *plan.Plan, begins bool) *run.Run {
	r := &run.Run{Client: client, Plan: p, Begins: begins, Theseus: a.Version, Waiting: a.Waiting,
		MaxWrites: kube.WritesPerSecond}
	if begins { // another process may have begun while a person read the plan
		r.MayBegin = func(ctx context.Context) error {
			return admission.Alone(ctx, admission.Request{Client: r.Client, Plan: p, Holder: journal.Holder(),
				Version: a.Version, Waiting: a.Waiting, Say: func(text string) { r.View.Say(text) }})
		}
	}
	r.Stoppable = func(at *run.Flight) (<-chan struct{}, func()) {
		stopping := &interrupt.Run{Stop: make(chan struct{}), Say: r.View.Say, Flight: at.String}
		return stopping.Stop, a.Signals.During(stopping)
	}
	if p.Mirror != nil {
		r.Mirrored = func(ctx context.Context, own engine.Deps, records engine.Journal) (engine.Actor,
			engine.Gate, error) {
			world, err := pair.Reach(ctx, a, access, p)
			if err != nil {
				return nil, nil, err
			}
			return mirrored.New(world, own, records, r.Dir, r.View.Note)
		}
	}
	r.Follow = func(ctx context.Context, of *plan.Origin) func() { return origin.Follow(ctx, a, of, r.View.Say) }
	return r
}
