package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

// Deps is everything that a run needs from outside.
type Deps struct {
	Actor   Actor
	Gate    Gate
	Journal Journal
	Control Control
	// Hindrance says why nothing should be done to the cluster just now, which pauses the run; "" when nothing speaks against
	// it. It is asked as often as Control is, and may be nil.
	Hindrance func(context.Context) string
	Clock     Clock
	// Together makes calls that do not need each other, side by side if it likes, and returns when all have
	// returned. nil makes one after another.
	Together func(calls []func())
	// Stop, when it is closed, ends the run after the action at hand; the end of the context ends it at once. It
	// may be nil.
	Stop <-chan struct{}
	// Epoch is that of the lock on the cluster; every record carries it.
	Epoch int64
	// By says who runs the engine (user@host), Theseus with which version.
	By      string
	Theseus string
	// Notify hears every record after it is durable; Note hears, in a line for people, what is being waited
	// for. Either may be nil.
	Notify func(Record)
	Note   func(string)
	Options
}

// Options are a run's bounds; zero values mean the defaults.
type Options struct {
	// PauseOnFailure leaves a failed run as it is, for a person, instead of rolling it back.
	PauseOnFailure bool
	// Patience is how long an outage is waited out; default 5 min.
	Patience time.Duration
	// Settling is how long a call that the cluster refuses (ErrRefused) is tried again; default 2 min.
	Settling time.Duration
	// ConditionTimeout bounds the wait for a step's conditions; default 5 min.
	ConditionTimeout time.Duration
	// ActionTimeout bounds an action that names no bound of its own; default 10 min.
	ActionTimeout time.Duration
	// Poll is the time between two looks at a condition; default 1 s.
	Poll time.Duration
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&o.Patience, 5*time.Minute)
	set(&o.Settling, 2*time.Minute)
	set(&o.ConditionTimeout, 5*time.Minute)
	set(&o.ActionTimeout, 10*time.Minute)
	set(&o.Poll, time.Second)
	return o
}

// machine is one run of the engine over one plan.
type machine struct {
	plan  *plan.Plan
	deps  Deps
	state State
	// away sums up outages, which do not count against the bounds of conditions.
	away time.Duration
	note string
	// advice is the hint of the failure that the run turned or ended by.
	advice string
}

// Run carries a plan out from where its journal stands. It returns an error only where the journal or the
// plan cannot be worked with; everything that can happen to a run is an Outcome. It starts no goroutine,
// and a context that ends, or Stop, leaves everything so that the next Run goes on.
func Run(ctx context.Context, p *plan.Plan, deps Deps) (Outcome, error) {
	if err := Validate(p); err != nil {
		return Outcome{}, err
	}
	deps.Options = deps.Options.withDefaults()
	m := &machine{plan: p, deps: deps, state: State{Phase: PhaseNew}}
	err := m.open(ctx)
	if err == nil && m.state.Over() {
		outcome := m.over()
		outcome.Already = true
		return outcome, nil
	}
	if err == nil {
		err = m.enter(ctx)
	}
	for err == nil {
		err = m.walk(ctx)
		if err == nil {
			return m.over(), nil
		}
		err = m.settle(ctx, err)
	}
	return m.end(ctx, err)
}

// open replays the journal and makes sure that it is this plan's.
func (m *machine) open(ctx context.Context) error {
	var records []Record
	err := m.patiently(ctx, "reading the journal", func(ctx context.Context) (err error) {
		records, err = m.deps.Journal.Records(ctx)
		return err
	})
	if err != nil {
		return err
	}
	m.state, err = Admit(m.plan, records)
	return err
}

// Admit reads a journal with which a run of the plan may go on: an unbroken chain from the plan's hash on, in an order that makes sense,
// with nothing in it that the plan does not allow.
func Admit(p *plan.Plan, records []Record) (State, error) {
	if _, err := Chained(records); err != nil {
		return State{}, err
	}
	state, err := Replay(records)
	if err != nil || state.Phase == PhaseNew {
		return state, err
	}
	if err := state.Matches(p); err != nil {
		return State{}, err
	}
	return state, Entitled(p, state)
}

// enter writes the first record of this run: Started, or Resumed. A run that is paused and asked to stay
// so writes nothing.
func (m *machine) enter(ctx context.Context) error {
	if m.state.Phase == PhaseNew {
		start, err := json.Marshal(Start{Plan: m.plan.Hash, Theseus: m.deps.Theseus, Flags: m.plan.Flags,
			Steps: len(m.plan.Steps)})
		if err != nil {
			return fmt.Errorf("engine: writing the first record: %w", err)
		}
		return m.append(ctx, Record{Event: Started, Data: start, By: m.deps.By})
	}
	desire, err := m.desire(ctx)
	if err != nil {
		return err
	}
	if m.state.Phase == PhasePaused && desire == v1alpha1.DesirePause {
		return errPaused
	}
	return m.append(ctx, Record{Event: Resumed, By: m.deps.By})
}

// walk goes on in the direction of the run until it is over.
func (m *machine) walk(ctx context.Context) error {
	switch {
	case m.state.Undoing:
		return m.backward(ctx)
	case m.state.Back != "":
		return m.alone(ctx)
	}
	return m.forward(ctx)
}

// settle decides what follows a failure: back, or a person. Every other end of a walk passes through.
func (m *machine) settle(ctx context.Context, err error) error {
	if errors.Is(err, errTurn) {
		return nil
	}
	var failed *failure
	if !errors.As(err, &failed) {
		return err
	}
	m.advice = failed.hint
	alone := slices.ContainsFunc(m.plan.Steps, func(st step.Step) bool { return st.ID == failed.step && st.Alone })
	if m.state.Undoing || m.state.Back != "" || m.deps.PauseOnFailure || m.state.PastReturn(m.plan.Steps) && !alone {
		if err := m.append(ctx, Record{Event: Finished, Step: failed.step, Result: ResultNeedsPerson,
			Error: failed.cause}); err != nil {
			return err
		}
		return failed
	}
	if alone {
		return m.append(ctx, Record{Event: TakingBack, Step: failed.step, Error: failed.cause})
	}
	return m.append(ctx, Record{Event: RollingBack, Step: failed.step, Result: ResultFailed, Error: failed.cause})
}

// end turns the error that ended a run into its outcome.
func (m *machine) end(ctx context.Context, err error) (Outcome, error) {
	var failed *failure
	var tired *gaveUp
	var back *takenBack
	switch {
	case errors.Is(err, errInterrupted):
		if ctx.Err() == nil {
			return m.outcome(EndInterrupted, "stopped as asked; all that was done is in the journal"), nil
		}
		outcome := m.outcome(EndInterrupted, context.Cause(ctx).Error())
		if hint := HintOf(context.Cause(ctx)); hint != "" {
			outcome.Hint = hint
		}
		return outcome, nil
	case errors.Is(err, errPaused):
		return m.outcome(EndPaused, m.state.Cause), nil
	case errors.As(err, &failed):
		return m.outcome(EndNeedsPerson, failed.cause), nil
	case errors.As(err, &back):
		return m.outcome(EndNeedsPerson, back.Error()), nil
	case errors.As(err, &tired):
		m.advice = HintOf(tired.err)
		return m.outcome(EndNeedsPerson, tired.Error()), nil
	}
	outcome := m.outcome(EndNeedsPerson, err.Error())
	outcome.Hint = HintOf(err)
	return outcome, err
}
