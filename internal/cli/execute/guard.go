package execute

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	guardplan "github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/proof/signal/ask"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// ErrNotRun is in the error of a guard that did not run its command.
var ErrNotRun = errors.New("the command was not run")

// told is a view whose records someone else gets too.
type told struct {
	run.View
	learn func(engine.Record)
}

func (t told) Past(records []engine.Record) {
	for _, r := range records {
		t.learn(r)
	}
	t.View.Past(records)
}

func (t told) Record(r engine.Record) {
	t.learn(r)
	t.View.Record(r)
}

// guarding lets a run carry out here what its plan guards: the actor that runs the command takes the signals that are
// for it. A terminal is no input for the command: it shows the run. stopped says whether the user has stopped the run:
// it may end as interrupted for other reasons too, such as a lost lock.
func guarding(a *app.App, r *run.Run, shown run.View) (stopped func() bool) {
	var in io.Reader
	if _, terminal := a.Terminal(); !terminal {
		in = a.In
	}
	actor := &guarded.Actor{Guard: *r.Plan.Guarded, MaxLost: r.Plan.Change.MaxLost, Clock: run.Clock{},
		Nodes: r.Plan.Cluster.Nodes, Tries: result.NewPodsAction(r.Plan.Steps),
		Samples: result.SampleAction(r.Plan.Steps),
		Result:  guardplan.StepWatch, Start: guarded.Here(in, shown.Output), Say: shown.Say}
	r.View = told{shown, actor.Learn}
	r.Command = func(own engine.Actor, gate *kube.Gate, signals *ask.Watch) engine.Actor {
		actor.Actor, actor.Gate, actor.Signals = own, gate, signals
		actor.Maker = &kube.NewPods{Actor: gate.Actor, Image: r.Plan.Change.AgentImage}
		actor.Sampler, actor.Follower = kube.Samples{Actor: gate.Actor}, gate.Actor
		actor.Joiner = &kube.Joins{Actor: gate.Actor, Image: r.Plan.Change.AgentImage}
		return actor
	}
	var stop chan struct{}
	r.Stoppable = func(at *run.Flight) (<-chan struct{}, func()) {
		stop = make(chan struct{})
		return stop, a.Signals.During(&interrupt.Run{Stop: stop, Say: shown.Say,
			Flight: at.String, Takes: actor.Interrupt})
	}
	return func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
}

// stands reports whether a guard that was interrupted is left as it is: others change the cluster, the baseline is
// taken, and there is no verdict yet. What was measured for days is not thrown away: the agents measure on without a
// process.
func stands(p *plan.Plan, state engine.State) bool {
	begun, watch := state.Find(guardplan.StepProbes), state.Find(guardplan.StepWatch)
	return p.Guarded.Others && !state.Undoing && begun != nil && begun.Done && (watch == nil || watch.Verdict == nil)
}

// guard runs a plan that guards a command, and turns its result into the exit code. An interrupt between the command
// and the end removes what the plan installed.
func guard(ctx context.Context, a *app.App, r *run.Run) error {
	dir, err := statedir.Make(r.Plan.Name)
	if err != nil {
		return err
	}
	view := view.New(a, r.Plan)
	r.Dir = dir
	stop := guarding(a, r, view)
	client := r.Client
	outcome, err := r.Execute(ctx)
	interrupted := err == nil && outcome.End == engine.EndInterrupted && stop()
	if interrupted && r.Desire == v1alpha1.DesireRun && stands(r.Plan, outcome.State) {
		view.Close()
		return exit.Fail(exit.Interrupted, "theseus guard stop --guard "+r.Plan.Name+
			" gives the verdict, and removes what was installed",
			"interrupted without a verdict; nothing was removed, and %s measures on", r.Plan.Name)
	}
	if interrupted {
		view.Say("removing what was installed; interrupt again to stop at once")
		r.Begins, r.Head, r.Client = false, "", client // each run has a lock of its own, which fences its client
		if !outcome.PastReturn {
			r.Desire = v1alpha1.DesireRollback
		}
		outcome, err = r.Execute(ctx)
	}
	view.Close()
	if err == nil && !interrupted && outcome.End == engine.EndPaused && outcome.State.Measures() {
		return measures(a, r.Plan)
	}
	patience := app.Begin
	if err != nil { // the run has waited already
		patience = app.Glance
	}
	var records []engine.Record
	unread := a.Patiently(context.WithoutCancel(ctx), patience, func(ctx context.Context) (err error) {
		records, err = journal.NewCluster(r.Client.Dynamic, r.Plan.Name).Records(ctx)
		return err
	})
	switch {
	case err != nil:
		return cmp.Or(proven(result.Of(r.Plan, records), err.Error(), exit.HintOf(err)), err)
	case unread != nil:
		return unknown(outcome, unread)
	}
	if a.Output != "json" {
		if err := a.Patiently(context.WithoutCancel(ctx), app.Glance, func(ctx context.Context) error {
			return Summary(ctx, a, r.Client, r.Plan)
		}); err != nil {
			fmt.Fprintf(a.Err, "warning: no summary: %v\n", err)
		}
	}
	return verdict(a, r.Plan, outcome, interrupted, records)
}

// measures says that a guard measures on, without a process.
func measures(a *app.App, p *plan.Plan) error {
	if a.Output == "json" {
		return json.NewEncoder(a.Out).Encode(map[string]string{"name": p.Name, "plan": p.Hash,
			"state": engine.ResultMeasuring})
	}
	text := fmt.Sprintf("%s measures until `theseus guard stop`, which any machine can run:\n"+
		"  theseus guard stop --guard %[1]s --expect %s\n"+
		"`theseus guard status` shows what was lost, `theseus guard mark TEXT` puts a line on the timeline\n",
		p.Name, p.Hash)
	if p.LossyBefore() {
		text += "`theseus guard stop` compares the totals and the longest silences with the baseline: it does not " +
			"detect a short rise of losses\n"
	}
	_, err := fmt.Fprint(a.Out, text)
	return err
}

// unknown is the error of a run whose journal cannot be read: the run's own, or that nothing is proven.
func unknown(outcome engine.Outcome, unread error) error {
	const unseen = "the result cannot be read"
	if outcome.End == engine.EndDone || outcome.End == engine.EndRolledBack {
		return exit.Fail(exit.Unproven, "theseus report shows the result when the API server answers",
			"not proven: %s: %w", unseen, unread)
	}
	return exit.Fail(outcome.ExitCode(), outcome.Hint, "%s: %s; and %s: %w", outcome.End,
		exit.Cause(outcome.Cause), unseen, unread)
}

// seen says where the measurements are.
const seen = "theseus report -o report.html shows every path, with times"

// proven is the error of a proven loss, or of a signal that failed; nil if there is none. wrong says what went wrong
// with the run itself, if anything did, and hint what to do about it.
func proven(r result.Result, wrong, hint string) error {
	proof, why := r.Judge()
	if proof != result.Lost && proof != result.Broken {
		return nil
	}
	what := "a loss is proven"
	if proof == result.Broken {
		what = "a signal failed since the baseline"
	}
	if r.Ran != nil && r.Ran.Failed() != "" {
		why += "; and the command failed: " + r.Ran.Failed()
	}
	advice := seen + worst(r.After)
	if wrong != "" {
		why += "; and what Theseus installed may still be there: " + wrong
		advice = strings.TrimPrefix(hint+"; ", "; ") + advice
	}
	return exit.Fail(exit.Lost, advice, "%s: %s", what, why)
}

// verdict prints the result of a guard, and is its error: a proven loss counts more than all else, then that the run
// did not end, then a command that failed, then a proof that is missing. interrupted is true if the user ended the run
// early.
func verdict(a *app.App, p *plan.Plan, outcome engine.Outcome, interrupted bool, records []engine.Record) error {
	r, wrong := result.Of(p, records), ""
	switch outcome.End {
	case engine.EndDone, engine.EndRolledBack, engine.EndStopped: // everything is removed
	default:
		wrong = fmt.Sprintf("%s: %s", outcome.End, exit.Cause(outcome.Cause))
	}
	if err := proven(r, wrong, outcome.Hint); err != nil {
		return err
	}
	switch {
	case !interrupted && outcome.End == engine.EndStopped && p.Guarded.Others: // theseus rollback
		return exit.Fail(exit.Stopped, "the report has what was measured until then: theseus report",
			"ended without a verdict; everything that was installed is removed")
	case interrupted && outcome.End == engine.EndStopped:
		return exit.Fail(exit.Interrupted, "the report has what was measured until then: theseus report",
			"interrupted; everything that was installed is removed")
	case outcome.End == engine.EndRolledBack && r.Ran == nil:
		what := ErrNotRun
		if p.Guarded.Others {
			what = errors.New("the measuring did not begin")
		}
		return exit.Fail(exit.Unproven, notBegun(p.Guarded, r), "%w, and everything that was installed is removed: %s",
			what, exit.Cause(outcome.Cause))
	case outcome.End == engine.EndRolledBack:
		return exit.Fail(exit.Unproven, seen, "not proven, and everything that was installed is removed: %s",
			exit.Cause(outcome.Cause))
	case outcome.End != engine.EndDone:
		return exit.Fail(outcome.ExitCode(), outcome.Hint, "%s: %s", outcome.End, exit.Cause(outcome.Cause))
	}
	switch proof, why := r.Judge(); {
	case proof == result.Interrupted:
		return exit.Fail(exit.Interrupted, seen, "interrupted; %s", why)
	case proof == result.Failed:
		return exit.Fail(exit.Failed, seen, "%s", why)
	case proof == result.Unproven && r.Ran != nil && r.Ran.Unknown:
		return exit.Fail(exit.Unproven, "check what the command did", "not proven: %s", why)
	case proof == result.Unproven:
		return exit.Fail(exit.Unproven, seen, "not proven: %s", why)
	}
	if a.Output != "json" {
		cost := "nothing was lost"
		if r.After.Lost > 0 {
			cost = "no more was lost than --max-lost allows"
		}
		why := r.After.Reason
		if as := r.As(); as != "" {
			cost, why = "the network lost probes before the change, and no more since then", as
		}
		if !p.Guarded.Others {
			cost = "the command succeeded, and " + cost
		}
		fmt.Fprintf(a.Out, "good: %s: %s\n", cost, why)
		for _, one := range r.Shut() {
			fmt.Fprintf(a.Out, "not covered: %s\n", one)
		}
	}
	return nil
}

// worst names the paths that lost most.
func worst(v *engine.Verdict) string {
	if v == nil || len(v.Bad) == 0 {
		return ""
	}
	return "; the worst: " + strings.Join(v.Bad[:min(len(v.Bad), 3)], "; ")
}

// notBegun says what to do when the command was not run.
func notBegun(g *kind.Guard, r result.Result) string {
	if r.Before != nil && !r.Before.Pass && len(signal.Not(r.Before.Signals)) > 0 {
		return "a signal that does not hold before the change proves nothing: repair that first, or " +
			"change the comparison of --slo"
	}
	if r.Before != nil && !r.Before.Pass && r.Before.Lost > 0 && !g.LossyBefore {
		return "the network loses probes without the change: repair it first, or accept that with --baseline-loss-ok"
	}
	return "kubectl get pods,events -n " + v1alpha1.Namespace +
		" while the guard runs again shows why probes do not run"
}
