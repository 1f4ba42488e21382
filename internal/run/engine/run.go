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
	// Past are the records of Journal, if the caller has read them under the lock of this run, and no record was
	// appended since. If there are none, Run reads them. In both cases Run verifies them.
	Past    []Record
	Control Control
	// Hindrance says why the run should change nothing in the cluster just now, which pauses it; "" if nothing prevents
	// it. It is called as often as Control, and may be nil.
	Hindrance func(context.Context) string
	// Hold says why the next step must not begin now. Then the run pauses between two steps, until that has passed. It
	// is asked neither about a step that has begun nor in a rollback, and may be nil.
	Hold  func(ctx context.Context, next *step.Step) (Hold, error)
	Clock Clock
	// Together makes calls that do not depend on each other, concurrently if it likes, and returns when all have
	// returned. nil makes one after another.
	Together func(calls []func())
	// Stop, when it is closed, ends the run after the current action; the end of the context ends it at once. It may be
	// nil.
	Stop <-chan struct{}
	// Epoch is that of the cluster's lock; every record carries it.
	Epoch int64
	// By says who runs the engine (user@host), and Theseus is its version.
	By      string
	Theseus string
	// Notify gets every record after it is durable; Note gets, as a line for people, what the run waits for. Either may
	// be nil.
	Notify func(Record)
	Note   func(string)
	Options
}

// Options are a run's limits; zero values mean the defaults.
type Options struct {
	// PauseOnFailure leaves a failed run as it is, for a person, instead of rolling it back.
	PauseOnFailure bool
	// Patience is how long calls are retried during an outage; default 5 min.
	Patience time.Duration
	// Settling is how long a call that the cluster refuses (ErrRefused) is retried; default 2 min.
	Settling time.Duration
	// ConditionTimeout bounds the wait for a step's conditions; default 5 min.
	ConditionTimeout time.Duration
	// ActionTimeout bounds an action without a timeout of its own; default 10 min.
	ActionTimeout time.Duration
	// Poll is the interval at which conditions are checked; default 1 s.
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
	// away is the duration of all outages, which do not count against the timeouts of conditions.
	away time.Duration
	note string
	// advice is the hint of the failure that made the run turn back or end.
	advice string
}

// Run carries out a plan from where its journal ends. It returns an error only if the journal or the plan cannot be
// used; everything that can happen during a run is an Outcome. It starts no goroutine. When its context ends, or Stop
// is closed, the next Run can continue.
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

// open replays the journal and checks that it belongs to this plan.
func (m *machine) open(ctx context.Context) error {
	records := m.deps.Past
	if m.deps.Past = nil; len(records) == 0 {
		if err := m.patiently(ctx, "reading the journal", func(ctx context.Context) (err error) {
			records, err = m.deps.Journal.Records(ctx)
			return err
		}); err != nil {
			return err
		}
	}
	var err error
	m.state, err = Admit(m.plan, records)
	return err
}

// Admit reads a journal with which a run of the plan may continue: an unbroken chain that starts with the plan's hash,
// in a possible order, and without actions that the plan does not allow.
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

// enter writes the first record of this run: Started, or Resumed. A run that is paused, and whose desired state is a
// pause, writes nothing.
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
	resumed := Record{Event: Resumed, By: m.deps.By}
	// else a restart, a window or the end of a freeze continues the run, whatever was requested before
	if m.state.Waits() {
		resumed.Data = m.asked()
	}
	return m.append(ctx, resumed)
}

// walk continues in the direction of the run until it ends.
func (m *machine) walk(ctx context.Context) error {
	switch {
	case m.state.Undoing:
		return m.backward(ctx)
	case m.state.Back != "":
		return m.alone(ctx)
	}
	return m.forward(ctx)
}

// settle decides what follows a failure: a rollback, or a person. It returns every other error as it is.
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

// end turns the error that ended a run into an outcome.
func (m *machine) end(ctx context.Context, err error) (Outcome, error) {
	var failed *failure
	var tired *gaveUp
	var back *takenBack
	switch {
	case errors.Is(err, errInterrupted):
		if ctx.Err() == nil {
			return m.outcome(EndInterrupted, "stopped as requested; the journal has everything that was done"), nil
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
