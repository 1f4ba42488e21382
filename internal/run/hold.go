package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/window"
	"github.com/theseus-cni/theseus/internal/step"
)

// Unfreeze is how a person ends a freeze.
const Unfreeze = "kubectl annotate namespace " + v1alpha1.Namespace + " " +
	v1alpha1.AnnotationFreeze + "- ends the freeze"

// Held says why a step must not begin now: a freeze (see journal.Freeze), or the windows of its migration. takes is how
// long the step takes; 0 if that is not known. It is an error if the windows are not valid, or if none is long enough.
func Held(windows []v1alpha1.Window, freeze string, now time.Time, takes time.Duration) (engine.Hold, error) {
	if freeze != "" {
		return engine.Hold{Result: engine.ResultFrozen, Cause: "frozen: " + freeze + "; " + Unfreeze}, nil
	}
	set, err := window.Of(windows)
	if err != nil {
		return engine.Hold{}, err
	}
	cause, err := set.Closed(now, takes)
	if err != nil || cause == "" {
		return engine.Hold{}, err
	}
	return engine.Hold{Result: engine.ResultOutsideWindow, Cause: cause}, nil
}

// held reports whether a run has waited for a window, or for the end of a freeze, since a gate passed, and not to be
// measured. That may have lasted days, in which nodes were restarted and probes lost: gates do not count those losses,
// and the report does.
func held(records []engine.Record) (waited bool) {
	for _, r := range records {
		switch {
		case r.Event == engine.Paused && r.Result != "" && r.Result != engine.ResultMeasuring:
			waited = true
		case r.Event == engine.GateAnswer && r.Verdict != nil && r.Verdict.Pass:
			waited = false
		}
	}
	return waited
}

// stood says whether a run has stood between two steps since the last one was done, as before says of the records
// before r: at the end of a window of the plan, or until a window of the Migration opens.
func stood(before bool, r engine.Record) bool {
	switch {
	case r.Event == engine.StepDone:
		return false
	case r.Event == engine.Paused && (r.Result == engine.ResultWindowEnded || r.Result == engine.ResultOutsideWindow):
		return true
	}
	return before
}

// measuring lets the step that awaits the end of changes of others begin when the user has said so.
func (r *Run) measuring(_ context.Context, next *step.Step) (engine.Hold, error) {
	if next.Awaits() && !r.Ended {
		return engine.Hold{Result: engine.ResultMeasuring, Cause: "the probes measure until `theseus guard stop`"}, nil
	}
	return engine.Hold{}, nil
}

// hold asks whether the next step may begin: not while the cluster is frozen, or outside of the Migration's windows. If
// the Migration has none, a run stops at the end of each window of its plan, until a user continues it. With invalid
// windows, no step begins.
func (r *Run) hold(ctx context.Context, next *step.Step) (engine.Hold, error) {
	freeze, err := journal.Freeze(ctx, r.Client.Dynamic)
	if err != nil {
		return engine.Hold{}, err
	}
	var windows []v1alpha1.Window
	if !r.AnyTime {
		migration, err := journal.Get(ctx, r.Client.Dynamic, r.Plan.Name)
		if err != nil {
			return engine.Hold{}, err
		}
		windows = migration.Spec.Windows
	}
	hold, err := Held(windows, freeze, time.Now(), r.Plan.Takes(next))
	switch {
	case err != nil:
		return engine.Hold{Result: engine.ResultOutsideWindow, Cause: err.Error()}, nil
	case hold != engine.Hold{} || !next.Stop || len(windows) > 0 || r.stood:
		return hold, nil
	}
	legs := r.Plan.Legs()
	window := slices.IndexFunc(legs, func(leg plan.Leg) bool { return r.Plan.Steps[leg.From].ID == next.ID })
	return engine.Hold{Result: engine.ResultWindowEnded,
		Cause: fmt.Sprintf("window %d of %d of the plan ends here, with both networks joined; "+
			"`theseus resume` checks the cluster and begins window %d", window, len(legs), window+1)}, nil
}
