package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/theseus-cni/theseus/internal/step"
)

// attempt is what is known about an action that is being done.
type attempt struct {
	action step.Action
	known  *ActionState // from the journal
	seen   Observation
	looked bool   // the first observation succeeded, and is in seen
	record Record // its outcome, if it succeeds
	done   bool   // its effect was there before
	before json.RawMessage
	err    error // of the last try
}

// lookTogether observes several actions. Those whose observation fails are observed again by intend.
func (m *machine) lookTogether(ctx context.Context, attempts []attempt) {
	var calls []func()
	for i := range attempts {
		a := &attempts[i]
		calls = append(calls, func() {
			seen, err := m.deps.Actor.Observe(ctx, a.action, a.before)
			a.seen, a.looked = seen, err == nil
		})
	}
	m.together(calls)
}

// errNotBegun is the error of an action that was to be done with others, of which one failed before this one began.
var errNotBegun = errors.New("not begun, because another action of its group failed")

// doTogether does several actions whose intents are written. Those that meet an outage are tried again together, for at
// most Options.Patience. Before each further try it does what the operator asks for: the actions that have not ended
// keep their intents, so that the next run, or the rollback, takes care of them.
func (m *machine) doTogether(ctx context.Context, st step.Step, attempts []attempt, undo bool) error {
	g := &group{machine: m, undo: undo}
	for i := range attempts {
		if a := &attempts[i]; a.done {
			g.settled = append(g.settled, a.record)
		} else {
			g.open = append(g.open, a)
		}
	}
	err := m.patiently(ctx, "step "+st.ID, g.round)
	if g.left != nil {
		return g.left
	}
	if refused, ok := errors.AsType[*refusedForGood](err); ok {
		for _, a := range g.open {
			a.err = &refusedForGood{refused.waited, a.err}
		}
		g.failed, err = append(g.failed, g.open...), nil
	}
	var first error
	var follows bool // from the failure of another action, which explains more
	for _, a := range g.failed {
		failed := m.actionFailed(ctx, st, a.action, a.record, true, a.err)
		if _, ok := errors.AsType[*failure](failed); !ok {
			return failed // the journal cannot be written
		}
		if late := errors.Is(a.err, errNotBegun); first == nil || follows && !late {
			first, follows = failed, late
		}
	}
	return cmp.Or(first, err)
}

// group is several actions that are done together.
type group struct {
	*machine
	undo    bool
	settled []Record   // outcomes that are not written yet
	open    []*attempt // not begun yet, or met an outage
	failed  []*attempt // permanently
	// left is why the group is left before its end: a pause, a rollback or a stop that was requested, or a journal that
	// cannot be written.
	left error
	// again is true after the first round.
	again bool
}

// round tries every open action once, and writes the outcomes of those that succeed. It returns the error of one that
// met an outage.
func (g *group) round(ctx context.Context) error {
	if g.again && len(g.failed) == 0 { // after a failure, the actions under way end before the run turns back
		if g.left = g.followDesire(ctx); g.left != nil {
			return nil
		}
	}
	g.again = true
	g.tryTogether(ctx, g.open, g.undo)
	var away []*attempt
	for _, a := range g.open {
		switch {
		case a.err == nil:
			g.settled = append(g.settled, a.record)
		case transient(a.err) || ctx.Err() != nil:
			away = append(away, a)
		default:
			g.failed = append(g.failed, a)
		}
	}
	g.open = away
	if g.left = g.append(ctx, g.settled...); g.left != nil || len(away) == 0 {
		return nil
	}
	g.settled = nil
	what := name(away[0].action)
	if more := len(away) - 1; more > 0 {
		what += fmt.Sprintf(", and %d more", more)
	}
	return fmt.Errorf("%s: %w", what, away[0].err)
}

// tryTogether tries each action once. When one fails permanently, those that are under way end, and the others do not
// begin; unless they take something back, which is better done on the other nodes than on none.
func (m *machine) tryTogether(ctx context.Context, attempts []*attempt, undo bool) {
	var calls []func()
	var failed atomic.Bool
	for _, a := range attempts {
		calls = append(calls, func() {
			if a.err == nil && (failed.Load() || ctx.Err() != nil) {
				a.err, a.record.Data = errNotBegun, nil
				return
			}
			a.record.Data, a.err = m.try(ctx, a.action, a.before)
			if a.err != nil && !transient(a.err) && !undo {
				failed.Store(true)
			}
		})
	}
	m.together(calls)
}

func (m *machine) together(calls []func()) {
	if m.deps.Together != nil {
		m.deps.Together(calls)
		return
	}
	for _, call := range calls {
		call()
	}
}
