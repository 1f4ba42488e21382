package run

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/window"
	"github.com/theseus-cni/theseus/internal/step"
)

// Unfreeze is how a person ends a freeze.
const Unfreeze = "kubectl annotate namespace " + v1alpha1.Namespace + " " + v1alpha1.AnnotationFreeze + "- ends the freeze"

// Held says why a step must not begin now: a freeze (see journal.Freeze), or the windows of its migration. takes is how long the
// step takes; 0 if that is not known. It is an error if the windows are not valid, or if none is long enough.
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

// held reports whether a run has waited for a window, or for the end of a freeze, since a gate passed, and not to be measured. That may have lasted days, in
// which nodes were restarted and probes lost: gates do not count those losses, and the report does.
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

// measuring lets the step that awaits the end of changes of others begin when the user has said so.
func (r *Run) measuring(_ context.Context, next *step.Step) (engine.Hold, error) {
	if next.Awaits() && !r.Ended {
		return engine.Hold{Result: engine.ResultMeasuring, Cause: "the probes measure until `theseus guard stop`"}, nil
	}
	return engine.Hold{}, nil
}

// hold asks whether the next step may begin. Windows that are not valid let none begin.
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
	hold, err := Held(windows, freeze, time.Now(), time.Duration(next.Estimate))
	if err != nil {
		return engine.Hold{Result: engine.ResultOutsideWindow, Cause: err.Error()}, nil
	}
	return hold, nil
}
