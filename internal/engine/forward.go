package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// forward does the steps that are not done.
func (m *machine) forward(ctx context.Context) error {
	for _, st := range m.plan.Steps {
		if known := m.state.Find(st.ID); known != nil && known.Done {
			continue
		}
		if err := m.step(ctx, st); err != nil {
			return err
		}
	}
	if !m.state.PastReturn(m.plan.Steps) { // the last moment to be asked back
		if err := m.heed(ctx); err != nil {
			return err
		}
	}
	return m.append(ctx, Record{Event: Finished, Result: ResultDone})
}

// step carries one step to its end, from wherever the journal left it.
func (m *machine) step(ctx context.Context, st step.Step) error {
	if err := m.heed(ctx); err != nil {
		return err
	}
	if m.state.Find(st.ID) == nil {
		if err := m.append(ctx, Record{Event: StepBegan, Step: st.ID}); err != nil {
			return err
		}
	}
	// Once an action was intended, what had to hold before the step need not hold any more.
	if len(m.state.Find(st.ID).Actions) == 0 {
		if err := m.await(ctx, st, "before it may begin", st.Before); err != nil {
			return err
		}
	}
	for actions := st.Actions; len(actions) > 0; {
		n := 1
		for n < len(actions) && actions[n].Beside {
			n++
		}
		group := m.unsettled(st, actions[:n])
		actions = actions[n:]
		if len(group) == 0 {
			continue
		}
		if err := m.heed(ctx); err != nil {
			return err
		}
		if err := m.act(ctx, st, false, group...); err != nil {
			return err
		}
	}
	if err := m.await(ctx, st, "after its actions", st.After); err != nil {
		return err
	}
	if err := m.gate(ctx, st); err != nil {
		return err
	}
	return m.append(ctx, Record{Event: StepDone, Step: st.ID})
}

// await waits until all conditions hold at once.
func (m *machine) await(ctx context.Context, st step.Step, when string, conditions []step.Condition) error {
	begun, away := m.deps.Clock.Now(), m.away
	for {
		missing, err := m.missing(ctx, conditions)
		if err != nil {
			return m.failed(st, fmt.Sprintf("step %s: looking %s", st.ID, when), err)
		}
		if missing == "" {
			m.say("")
			return nil
		}
		waited := m.deps.Clock.Now().Sub(begun) - (m.away - away)
		if waited >= m.deps.ConditionTimeout {
			return &failure{st.ID, fmt.Sprintf("step %s: %s: %s, for %s", st.ID, when, missing, waited.Round(time.Second))}
		}
		m.say(fmt.Sprintf("step %s waits, %s: %s", st.ID, when, missing))
		if err := m.heed(ctx); err != nil {
			return err
		}
		if err := m.deps.Clock.Sleep(ctx, m.deps.Poll); err != nil {
			return errInterrupted
		}
	}
}

// missing says what keeps the conditions from holding; "" when nothing does.
func (m *machine) missing(ctx context.Context, conditions []step.Condition) (string, error) {
	for _, condition := range conditions {
		var holds bool
		var why string
		err := m.patiently(ctx, "looking at the cluster", func(ctx context.Context) (err error) {
			holds, why, err = m.deps.Actor.Holds(ctx, condition)
			return err
		})
		if err != nil {
			return "", err
		}
		if !holds && why == "" {
			why = fmt.Sprintf("condition %s does not hold", condition.Kind)
		}
		if !holds {
			return why, nil
		}
	}
	return "", nil
}

// unsettled are the actions that still need something.
func (m *machine) unsettled(st step.Step, actions []step.Action) []step.Action {
	var left []step.Action
	for _, action := range actions {
		if !m.state.Find(st.ID).action(action.ID, false).settled() {
			left = append(left, action)
		}
	}
	return left
}

// deed is an action under way.
type deed struct {
	action step.Action
	record Record // its outcome, when all is well
	done   bool   // it was done before it began
	before json.RawMessage
	err    error // of the first try
}

// act looks, writes the intent, acts where needed, and writes the outcome. Of several actions that do not need each
// other every intent is written before the first is done, and every outcome even where another failed.
func (m *machine) act(ctx context.Context, st step.Step, undo bool, actions ...step.Action) error {
	deeds := make([]deed, len(actions))
	for i, action := range actions {
		var err error
		if deeds[i], err = m.intend(ctx, st, action, undo); err != nil {
			return err
		}
	}
	if len(deeds) > 1 {
		m.tryTogether(ctx, deeds)
	}
	var first error
	for i := range deeds {
		err := m.finish(ctx, st, &deeds[i], len(deeds) > 1)
		var failed *failure
		if err != nil && !errors.As(err, &failed) && !errors.Is(err, errInterrupted) {
			return err // the journal cannot be written
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// intend looks and writes the intent. The inverse is what the first look said: after it, the world may already
// carry the action's own traces.
func (m *machine) intend(ctx context.Context, st step.Step, action step.Action, undo bool) (deed, error) {
	if action.Timeout <= 0 {
		action.Timeout = step.Duration(m.deps.ActionTimeout)
	}
	known := m.state.Find(st.ID).action(action.ID, undo)
	d := deed{action: action, record: Record{Event: Acted, Step: st.ID, Action: action.ID, Undo: undo, Result: ResultDone}}
	if known != nil {
		d.before = known.Before
	}
	seen, err := m.observe(ctx, action, d.before)
	if err != nil {
		return d, m.actionFailed(ctx, st, action, d.record, known.open(), err)
	}
	if known.open() {
		d.record.Data = seen.Before // where it is done already, this is the only trace of its answer
	} else if err := m.append(ctx, intent(st, action, undo, seen, known)); err != nil {
		return d, err
	}
	if d.done = seen.Done; d.done {
		d.record.Result = ResultAlready
	}
	d.before = m.state.Find(st.ID).action(action.ID, undo).Before
	return d, nil
}

// tryTogether makes the first try of each action that is not done.
func (m *machine) tryTogether(ctx context.Context, deeds []deed) {
	var calls []func()
	for i := range deeds {
		if d := &deeds[i]; !d.done {
			calls = append(calls, func() { d.record.Data, d.err = m.try(ctx, d.action, d.before) })
		}
	}
	if m.deps.Together != nil {
		m.deps.Together(calls)
		return
	}
	for _, call := range calls {
		call()
	}
}

// finish does what is not done, or what an outage kept the first try from, and writes the outcome.
func (m *machine) finish(ctx context.Context, st step.Step, d *deed, tried bool) error {
	if !d.done && (!tried || d.err != nil && (ctx.Err() != nil || transient(d.err))) {
		d.record.Data, d.err = m.do(ctx, d.action, d.before)
	}
	if d.err != nil {
		return m.actionFailed(ctx, st, d.action, d.record, true, d.err)
	}
	return m.append(ctx, d.record)
}

// intent is the record before an action.
func intent(st step.Step, action step.Action, undo bool, seen Observation, known *ActionState) Record {
	r := Record{Event: Intended, Step: st.ID, Action: action.ID, Undo: undo, Before: seen.Before}
	switch {
	case undo:
	case known != nil:
		r.Inverse = known.Inverse
	case !seen.Done && seen.Inverse != nil: // what was there before is not ours to take away
		inverse := *seen.Inverse
		inverse.ID = action.ID + "/undo"
		if inverse.Title == "" {
			inverse.Title = "take back: " + action.Title
		}
		r.Inverse = &inverse
	}
	return r
}

func (m *machine) observe(ctx context.Context, action step.Action, before json.RawMessage) (Observation, error) {
	var seen Observation
	err := m.patiently(ctx, name(action), func(ctx context.Context) (err error) {
		seen, err = m.deps.Actor.Observe(ctx, action, before)
		return err
	})
	return seen, err
}

func (m *machine) do(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error) {
	var answer json.RawMessage
	err := m.patiently(ctx, name(action), func(ctx context.Context) (err error) {
		answer, err = m.try(ctx, action, before)
		return err
	})
	return answer, err
}

// try does an action once, within its bound. It touches nothing of the machine, so that several may be tried at once.
func (m *machine) try(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error) {
	limit := time.Duration(action.Timeout)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := m.deps.Actor.Do(bounded, action, before)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		// An expired deadline calls itself temporary; the bound of an action is not.
		return answer, fmt.Errorf("not finished within %s: %s", limit, err.Error())
	}
	return answer, err
}

// actionFailed writes the outcome of an action that failed, when its intent was written.
func (m *machine) actionFailed(ctx context.Context, st step.Step, action step.Action, record Record,
	intended bool, err error) error {
	failed := m.failed(st, name(action), err)
	var cause *failure
	if !errors.As(failed, &cause) || !intended {
		return failed
	}
	record.Result, record.Error, record.Data = ResultFailed, err.Error(), nil
	if err := m.append(ctx, record); err != nil {
		return err
	}
	return failed
}

// failed makes an error a failure of the step, unless it only says that the run has to stop here.
func (m *machine) failed(st step.Step, what string, err error) error {
	var tired *gaveUp
	var fails *failure
	if errors.Is(err, errInterrupted) || errors.As(err, &tired) || errors.As(err, &fails) {
		return err
	}
	return &failure{st.ID, fmt.Sprintf("%s: %v", what, err)}
}

// gate asks for fresh evidence. No evidence is a failure.
func (m *machine) gate(ctx context.Context, st step.Step) error {
	if known := m.state.Find(st.ID); st.Gate == nil || known.Verdict != nil && known.Verdict.Pass {
		return nil
	}
	if err := m.heed(ctx); err != nil {
		return err
	}
	if err := m.append(ctx, Record{Event: GateAsked, Step: st.ID}); err != nil {
		return err
	}
	var verdict Verdict
	var left error // a pause, a rollback or a stop that was asked for meanwhile
	err := m.patiently(ctx, "asking the gate of "+st.ID, func(ctx context.Context) (err error) {
		heeded := m.deps.Clock.Now()
		verdict, err = m.deps.Gate.Ask(ctx, *st.Gate, func(ctx context.Context) error {
			if now := m.deps.Clock.Now(); m.stopped() || now.Sub(heeded) >= heedEvery {
				left, heeded = m.heed(ctx), now
			}
			return left
		})
		if left != nil {
			return nil
		}
		return err
	})
	if left != nil {
		return left
	}
	var fails *failure
	if err != nil {
		failed := m.failed(st, "no evidence", err)
		if !errors.As(failed, &fails) {
			return failed
		}
		verdict = Verdict{Reason: fails.cause}
	}
	if err := m.append(ctx, Record{Event: GateAnswer, Step: st.ID, Verdict: &verdict}); err != nil {
		return err
	}
	if !verdict.Pass {
		return &failure{st.ID, fmt.Sprintf("the gate of step %s did not pass: %s", st.ID, verdict.Reason)}
	}
	return nil
}

// name is what an action is called in messages.
func name(action step.Action) string {
	if action.Title != "" {
		return action.Title
	}
	return "action " + action.ID
}
