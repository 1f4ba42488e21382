package incluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/window"
)

// NotFrozen returns an error while a person has frozen the cluster, so that no step of a migration may begin.
func NotFrozen(ctx context.Context, a *app.App, client *kube.Client) error {
	freeze, err := frozen(ctx, a, client)
	if err == nil && freeze != "" {
		err = exit.Fail(exit.Failed, run.Unfreeze+", for all migrations of this cluster",
			"no step may begin in this cluster, which is frozen: %s", freeze)
	}
	return err
}

func frozen(ctx context.Context, a *app.App, client *kube.Client) (freeze string, err error) {
	err = a.Patiently(ctx, app.Begin, func(ctx context.Context) error {
		freeze, err = journal.Freeze(ctx, client.Dynamic)
		return err
	})
	return freeze, err
}

// MayContinue returns an error if this machine must not continue a migration now: the cluster is frozen, or no window
// is open, unless anyTime is true. A rollback, a step that has begun, and what guards a command may go on at any time.
func MayContinue(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, migration *v1alpha1.Migration,
	state engine.State, anyTime bool) error {
	if n := len(state.Steps); state.Undoing || state.Back != "" || p.Foreign() ||
		n > 0 && !state.Steps[n-1].Done && !state.Steps[n-1].Undone {
		return nil
	}
	if err := NotFrozen(ctx, a, client); err != nil || anyTime {
		return err
	}
	hold, err := run.Held(migration.Spec.Windows, "", time.Now(), next(p, state))
	const override = "or add --outside-windows to continue here now"
	switch {
	case err != nil:
		return exit.Fail(exit.Failed, "change spec.windows of the migration, "+override, "%s: %w", p.Name, err)
	case hold != engine.Hold{}:
		return exit.Fail(exit.Failed, "`theseus resume "+p.Name+
			" --in-cluster` lets the controller continue then by itself, "+override,
			"%s must not continue now: %s", p.Name, hold.Cause)
	}
	return nil
}

// next is how much of a window the step needs that begins next; 0 if none does.
func next(p *plan.Plan, state engine.State) time.Duration {
	for i := range p.Steps {
		if state.Find(p.Steps[i].ID) == nil {
			return p.Takes(&p.Steps[i])
		}
	}
	return 0
}

// Times is when the steps of a migration may begin. It is empty if it says nothing.
type Times struct {
	// Frozen is why no step may begin in this cluster.
	Frozen string `json:"frozen,omitempty"`
	// Windows are the windows, as text.
	Windows []string `json:"windows,omitempty"`
	// Until is when the windows close that are open now; nil if none is.
	Until *time.Time `json:"windowCloses,omitempty"`
	// Next is when the next one opens.
	Next *time.Time `json:"nextWindow,omitempty"`
	// Wrong is what is wrong with the windows, or why the freeze cannot be read.
	Wrong string `json:"timesError,omitempty"`
}

// TimesOf reads when the steps of a migration may begin.
func TimesOf(ctx context.Context, client *kube.Client, migration *v1alpha1.Migration, now time.Time) Times {
	var times Times
	var err error
	if times.Frozen, err = journal.Freeze(ctx, client.Dynamic); err != nil {
		times.Wrong = err.Error()
	}
	for _, one := range migration.Spec.Windows {
		times.Windows = append(times.Windows, window.Text(one))
	}
	windows, err := window.Of(migration.Spec.Windows)
	if err != nil {
		times.Wrong = err.Error()
	}
	_, until, next := windows.Admits(now, 0)
	if !until.IsZero() {
		times.Until = &until
	}
	if !next.From.IsZero() {
		times.Next = &next.From
	}
	return times
}

// Lines are the times for people.
func (t Times) Lines() []string {
	var lines []string
	if t.Frozen != "" {
		lines = append(lines, "frozen: "+t.Frozen+"; "+run.Unfreeze)
	}
	if len(t.Windows) > 0 {
		line := "windows: " + strings.Join(t.Windows, "; ")
		if t.Until != nil {
			line += fmt.Sprintf("; one is open, and closes %s", window.Time(*t.Until))
		}
		if t.Next != nil {
			line += "; the next one opens " + window.Time(*t.Next)
		}
		lines = append(lines, line)
	}
	if t.Wrong != "" {
		lines = append(lines, "windows or freeze: "+t.Wrong)
	}
	return lines
}
