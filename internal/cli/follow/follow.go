package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

const (
	// Every second the journal and the Migration are read; the probes' reports and the lock less often.
	readEvery     = time.Second
	evidenceEvery = 2 * time.Second
	lockEvery     = 5 * time.Second
	// untaken is how long a controller may leave a new migration alone before that is worth a line.
	untaken = 20 * time.Second
	// recheck is how long an obstacle from before may be out of date: the controller checks again within a minute.
	recheck = 75 * time.Second
	// adviceWithin is how long the controller's advice is waited for after the last record.
	adviceWithin = 5 * time.Second
	// A run that has ended writes its last results within 20 s, and releases the lock then. After writtenWithin, they
	// are not waited for.
	writtenWithin = 30 * time.Second
)

// follower watches one migration.
type follower struct {
	a      *app.App
	client *kube.Client
	plan   *plan.Plan
	view   view.View
	tail   *journal.Tail
	actor  *kube.Actor
	holder journal.Watch
	// after is the number of records before a person asked for the run: an earlier end is not its end.
	after  int
	probes run.Watcher

	migration  *v1alpha1.Migration
	conditions map[string]metav1.Condition
	earlier    *metav1.Condition // the obstacle when the watching began
	runner     string            // the last line about who runs it
	begun      time.Time
	looked     time.Time // at the reports
	asked      time.Time // for the lock
	over       time.Time // when the end was seen
	refused    time.Time // since when the API server refuses calls
	said       string    // the last error
}

// Run shows a migration until it ends, and turns its end into the exit code that `theseus apply` has. An interrupt ends
// the watching only. after is the number of records that the journal had when a person asked for the run.
func Run(ctx context.Context, a *app.App, client *kube.Client, name string, after int) error {
	f := &follower{a: a, client: client, tail: journal.NewTail(client.Dynamic, name),
		actor: run.NewActor(client), after: after, conditions: map[string]metav1.Condition{}, begun: time.Now()}
	var past []engine.Record
	err := a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		if f.plan, f.migration, err = journal.Load(ctx, client.Dynamic, name); err != nil {
			return err
		}
		past, err = f.tail.Next(ctx)
		return err
	})
	if err != nil {
		return err
	}
	unwatch, err := f.actor.Follow(ctx, client)
	if err != nil {
		return err
	}
	defer unwatch()
	f.earlier = incluster.Obstacle(f.migration)
	if f.probes.Dir, err = statedir.Make(name); err != nil {
		f.probes.Dir = ""
		fmt.Fprintf(a.Err, "note: the measurements are not kept on this machine for theseus report: %v\n", err)
	}
	return f.watch(ctx, past)
}

// watch shows what happens after the past records.
func (f *follower) watch(ctx context.Context, past []engine.Record) error {
	state := f.tail.State()
	stop := make(chan struct{})
	done := f.a.Signals.During(&interrupt.Run{Stop: stop, Watched: true})
	defer done()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the watching
		select {
		case <-stop:
			cancel()
		case <-watching.Done():
		}
	}()
	fmt.Fprintf(f.a.Err, "watching %s: %s -> %s, %d of %d steps done; Ctrl-C ends the watching, not the migration\n",
		f.plan.Name, f.plan.From(), f.plan.To(), state.DoneSteps(), len(f.plan.Steps))
	f.view = view.Watching(f.a, f.plan, state.StartedAt)
	f.probes.View = f.view
	f.view.Past(past)
	end, err := f.poll(watching)
	f.probes.Close()
	written := err != nil || f.written(watching)
	f.view.Close()
	if err != nil && watching.Err() != nil {
		return exit.Fail(exit.Interrupted, fmt.Sprintf(
			"`theseus watch %s` shows it again; `theseus pause %[1]s` pauses the migration itself", f.plan.Name),
			"stopped watching %s; the migration itself was not interrupted", f.plan.Name)
	}
	if err != nil {
		return err
	}
	if !written {
		fmt.Fprintln(f.a.Err, "warning: the last results may be missing: Theseus does not know whether the "+
			"process that "+
			"ran it has written them")
	}
	f.summary(ctx)
	return end
}

// poll looks at the migration again and again. end is how it ended.
func (f *follower) poll(ctx context.Context) (end, err error) {
	for {
		over, end, err := f.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && !f.passes(err):
			return nil, err
		case err != nil:
		case over:
			return end, nil
		default:
			f.refused, f.said = time.Time{}, ""
		}
		if err := outage.Sleep(ctx, readEvery); err != nil {
			return nil, err
		}
	}
}

// passes says whether an error may go away by itself. There is no limit for outages: a laptop sleeps, and wakes up.
func (f *follower) passes(err error) bool {
	switch {
	case outage.Refused(err) || errors.Is(err, engine.ErrRefused):
		if f.refused.IsZero() {
			f.refused = time.Now()
		}
		if time.Since(f.refused) > outage.Bound {
			return false
		}
	case !outage.Passes(err) && !errors.Is(err, engine.ErrUnavailable):
		return false
	}
	if text := outage.Steady(err).Error(); text != f.said {
		f.said = text
		f.view.Say("waiting for the API server: " + text)
	}
	return true
}

// look reads everything once, and says whether the migration is over.
func (f *follower) look(ctx context.Context) (over bool, end, err error) {
	records, err := f.tail.Next(ctx)
	if err != nil {
		return false, nil, err
	}
	for _, r := range records {
		f.view.Record(r)
	}
	if f.migration, err = journal.Get(ctx, f.client.Dynamic, f.plan.Name); err != nil {
		return false, nil, err
	}
	f.showConditions()
	f.evidence(ctx)
	if over, end := f.ended(); over {
		return true, end, nil
	}
	return false, nil, f.lock(ctx)
}

// showConditions shows the conditions that have changed.
func (f *follower) showConditions() {
	for _, c := range f.migration.Status.Conditions {
		before, known := f.conditions[c.Type]
		if known && before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message {
			continue
		}
		f.conditions[c.Type] = c
		if events, ok := f.view.(interface{ Condition(metav1.Condition) }); ok {
			events.Condition(c)
		} else if incluster.Tells(c) {
			f.view.Say(incluster.Line(c))
		}
	}
}

// evidence shows what the probes' reports say, and keeps it. Users who may not read them watch without. After the end
// of a migration, the reports are of whatever runs next.
func (f *follower) evidence(ctx context.Context) {
	if state := f.tail.State(); !f.plan.OnNodes() || state.Seq == 0 || state.Over() ||
		time.Since(f.looked) < evidenceEvery {
		return
	}
	f.looked = time.Now()
	f.probes.Look(ctx, f.actor)
}

// ended says whether the migration has ended, or the controller does not run it as it is, and how.
func (f *follower) ended() (over bool, end error) {
	state := f.tail.State()
	outcome, over := engine.Ended(f.plan, state)
	obstacle := f.obstacle()
	switch {
	case over && outcome.End == engine.EndDone:
		return true, nil
	case over && (state.Over() || state.Seq > f.after):
		if obstacle != nil {
			outcome.Hint = obstacle.Message
		}
		return f.settled(outcome, obstacle != nil), exit.Fail(outcome.ExitCode(), outcome.Hint, "%s: %s",
			outcome.End, exit.Cause(outcome.Cause))
	case obstacle != nil && !over:
		return true, f.stuck(obstacle, state.Seq == 0)
	}
	return false, nil
}

// obstacle is why the controller does not run the migration; nil if that is from before the watching, and may be out of
// date.
func (f *follower) obstacle() *metav1.Condition {
	now := incluster.Obstacle(f.migration)
	if now == nil || f.earlier == nil || now.Reason == v1alpha1.ReasonNeedsPerson {
		return now
	}
	if now.Reason == f.earlier.Reason && now.Message == f.earlier.Message && time.Since(f.begun) < recheck {
		return nil
	}
	return now
}

// stuck is the error for a migration that the controller does not run. fresh is true if nothing was changed yet.
func (f *follower) stuck(obstacle *metav1.Condition, fresh bool) error {
	code := exit.NeedsPerson
	switch obstacle.Reason {
	case v1alpha1.ReasonBlocked:
		code = exit.Blocked
	case v1alpha1.ReasonStalePlan, v1alpha1.ReasonWrongCluster, v1alpha1.ReasonNotSupported, v1alpha1.ReasonTooLarge,
		v1alpha1.ReasonChangeEdited:
		code = exit.Failed
	}
	hint := fmt.Sprintf("then `theseus resume %s --in-cluster` tries again", f.plan.Name)
	if fresh {
		hint = fmt.Sprintf("nothing was changed. The controller looks again every minute, and begins when the cause "+
			"is gone; `theseus rollback %s` ends this migration", f.plan.Name)
	}
	return exit.Fail(code, hint, "the controller does not run %s (%s): %s",
		f.plan.Name, obstacle.Reason, obstacle.Message)
}

// settled says whether everything is known about an end: the controller writes its condition, with advice, a moment
// after the last record.
func (f *follower) settled(outcome engine.Outcome, advised bool) bool {
	if f.over.IsZero() {
		f.over = time.Now()
	}
	return outcome.End != engine.EndNeedsPerson || advised || !f.migration.Spec.InCluster ||
		time.Since(f.over) > adviceWithin
}

// lock shows who runs the migration.
func (f *follower) lock(ctx context.Context) error {
	if time.Since(f.asked) < lockEvery {
		return nil
	}
	f.asked = time.Now()
	state := f.tail.State()
	holder, err := f.holder.Look(ctx, run.Leases(f.client), state.End())
	if err != nil {
		return err
	}
	line := ""
	switch {
	case holder != nil:
		line = holder.Error()
	case state.Phase == engine.PhasePaused:
	case !f.migration.Spec.InCluster:
		line = "no process runs it: " + engine.Judge(f.plan.Steps, state, false).Ways
	case meta.FindStatusCondition(f.migration.Status.Conditions, v1alpha1.ConditionProgressing) == nil &&
		time.Since(f.begun) > untaken:
		line = fmt.Sprintf("the controller has not taken it up yet: kubectl get deployment,pods -n %s",
			v1alpha1.Namespace)
	}
	if line != f.runner && line != "" {
		f.view.Say(line)
	}
	f.runner = line
	return nil
}

// written waits until the process that ran the migration to its end has written its last results: it releases the lock
// then. It is false if that is not known.
func (f *follower) written(ctx context.Context) bool {
	state := f.tail.State()
	if _, over := engine.Ended(f.plan, state); !over || !f.summarizes() {
		return true
	}
	for begun, said := time.Now(), false; ; {
		holder, err := f.holder.Look(ctx, run.Leases(f.client), state.At)
		if err == nil && holder == nil {
			return !f.holder.Died
		}
		if holder != nil && !said {
			said = true
			f.view.Say("waiting for its last results: " + holder.Error())
		}
		if time.Since(begun) >= writtenWithin || outage.Sleep(ctx, readEvery) != nil {
			return false
		}
	}
}

// summarizes reports whether a summary is printed at the end.
func (f *follower) summarizes() bool {
	return f.a.Output != "json" && f.plan.OnNodes() && f.tail.State().Seq > 0
}

// summary prints the summary of the report, as a run does at its end.
func (f *follower) summary(ctx context.Context) {
	if !f.summarizes() {
		return
	}
	if err := f.a.Patiently(ctx, app.Glance, func(ctx context.Context) error {
		return execute.Summary(ctx, f.a, f.client, f.plan)
	}); err != nil {
		fmt.Fprintf(f.a.Err, "warning: no summary: %v\n", err)
	}
}
