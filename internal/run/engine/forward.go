package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
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
	if !m.state.PastReturn(m.plan.Steps) { // the last chance to roll back
		m.fresh()
		if err := m.followDesire(ctx); err != nil {
			return err
		}
	}
	return m.append(ctx, Record{Event: Finished, Result: ResultDone})
}

// step completes one step, from wherever the journal left it.
func (m *machine) step(ctx context.Context, st step.Step) error {
	if st.NoReturn {
		m.fresh()
	}
	if err := m.followDesire(ctx); err != nil {
		return err
	}
	if m.state.Find(st.ID) == nil {
		if err := m.held(ctx, &st); err != nil {
			return err
		}
		if err := m.append(ctx, Record{Event: StepBegan, Step: st.ID}); err != nil {
			return err
		}
	}
	// Once an action was intended, the step's conditions before it need not hold any more.
	if len(m.state.Find(st.ID).Actions) == 0 {
		if err := m.await(ctx, st, "before it may begin", st.Before); err != nil {
			return err
		}
	}
	if err := m.carryOut(ctx, st, st.Actions, false); err != nil {
		return err
	}
	if err := m.await(ctx, st, "after its actions", st.After); err != nil {
		return err
	}
	if err := m.gate(ctx, st); err != nil {
		return err
	}
	return m.append(ctx, Record{Event: StepDone, Step: st.ID})
}

// held pauses a run whose next step must not begin now.
func (m *machine) held(ctx context.Context, next *step.Step) error {
	if m.deps.Hold == nil {
		return nil
	}
	var hold Hold
	err := m.patiently(ctx, "asking whether the next step may begin", func(ctx context.Context) (err error) {
		hold, err = m.deps.Hold(ctx, next)
		return err
	})
	if err != nil || hold == (Hold{}) {
		return err
	}
	if err := m.append(ctx, Record{Event: Paused, Result: hold.Result, Error: hold.Cause, By: m.deps.By}); err != nil {
		return err
	}
	return errPaused
}

// await waits until all conditions hold at once.
func (m *machine) await(ctx context.Context, st step.Step, when string, conditions []step.Condition) error {
	begun, away := m.deps.Clock.Now(), m.away
	for {
		missing, err := m.missing(ctx, conditions)
		if err != nil {
			return m.failed(st, fmt.Sprintf("step %s: checking conditions %s", st.ID, when), err)
		}
		if missing == "" {
			m.say("")
			return nil
		}
		waited := m.deps.Clock.Now().Sub(begun) - (m.away - away)
		if waited >= m.deps.ConditionTimeout {
			return &failure{st.ID,
				fmt.Sprintf("step %s: %s: %s, for %s", st.ID, when, missing, waited.Round(time.Second)), ""}
		}
		m.say(fmt.Sprintf("step %s waits %s: %s", st.ID, when, missing))
		if err := m.followDesire(ctx); err != nil {
			return err
		}
		if err := m.deps.Clock.Sleep(ctx, m.deps.Poll); err != nil {
			return errInterrupted
		}
	}
}

// missing says which condition does not hold, and why; "" when all hold. After an outage it asks about all of them
// again: an answer from before it says nothing of the time after it.
func (m *machine) missing(ctx context.Context, conditions []step.Condition) (string, error) {
	var asked []*answer
	err := m.patiently(ctx, "checking conditions", func(ctx context.Context) error {
		asked = m.holdTogether(ctx, conditions)
		for _, a := range asked {
			if a != nil && (a.err != nil || !a.holds) {
				return a.err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	for i, condition := range conditions {
		var a answer
		if i < len(asked) && asked[i] != nil {
			a = *asked[i]
		} else if err := m.patiently(ctx, "checking a condition", func(ctx context.Context) (err error) {
			a.holds, a.why, err = m.deps.Actor.Holds(ctx, condition)
			return err
		}); err != nil {
			return "", err
		}
		if !a.holds && a.why == "" {
			a.why = fmt.Sprintf("condition %s does not hold", condition.Kind())
		}
		if !a.holds {
			return a.why, nil
		}
	}
	return "", nil
}

// answer is what the actor says about a condition.
type answer struct {
	holds bool
	why   string
	err   error
}

// holdTogether asks about several conditions at a time: a step of many nodes has some for each. It does not ask about
// those that it would begin after one that does not hold, nor twice about the same. Nil if conditions are asked one
// after another.
func (m *machine) holdTogether(ctx context.Context, conditions []step.Condition) []*answer {
	if m.deps.Together == nil || len(conditions) < 2 {
		return nil
	}
	answers, calls, missing := make([]*answer, len(conditions)), []func(){}, atomic.Bool{}
	seen := map[string]bool{}
	for i, condition := range conditions {
		key, err := json.Marshal(condition)
		if err != nil || seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		calls = append(calls, func() {
			if missing.Load() || ctx.Err() != nil {
				return
			}
			var a answer
			if a.holds, a.why, a.err = m.deps.Actor.Holds(ctx, condition); !a.holds || a.err != nil {
				missing.Store(true)
			}
			answers[i] = &a
		})
	}
	m.together(calls)
	return answers
}

// carryOut does the actions of a step, or of its undo, that are not settled yet, in their order. Actions that are
// marked Together are done together with the one before them.
func (m *machine) carryOut(ctx context.Context, st step.Step, actions []step.Action, undo bool) error {
	for len(actions) > 0 {
		n := 1
		for n < len(actions) && actions[n].Together {
			n++
		}
		group := m.unsettled(st, actions[:n], undo)
		actions = actions[n:]
		if len(group) == 0 {
			continue
		}
		if st.NoReturn && !undo { // the step may have waited for long since it began
			m.fresh()
		}
		if err := m.followDesire(ctx); err != nil {
			return err
		}
		if err := m.act(ctx, st, undo, group...); err != nil {
			return err
		}
	}
	return nil
}

// unsettled are the actions that are not settled yet.
func (m *machine) unsettled(st step.Step, actions []step.Action, undo bool) []step.Action {
	var left []step.Action
	for _, action := range actions {
		if !m.state.Find(st.ID).action(action.ID, undo).settled() {
			left = append(left, action)
		}
	}
	return left
}

// act observes, writes the intent, acts if needed, and writes the outcome. Of several actions that do not depend on
// each other, it writes every intent before it starts the first action, and every outcome even if another one failed.
func (m *machine) act(ctx context.Context, st step.Step, undo bool, actions ...step.Action) error {
	attempts := make([]attempt, len(actions))
	for i, action := range actions {
		if action.Timeout <= 0 {
			action.Timeout = step.Duration(m.deps.ActionTimeout)
		}
		attempts[i] = attempt{action: action, known: m.state.Find(st.ID).action(action.ID, undo),
			record: Record{Event: Acted, Step: st.ID, Action: action.ID, Undo: undo, Result: ResultDone}}
		if known := attempts[i].known; known != nil {
			attempts[i].before = known.Before
		}
	}
	if len(attempts) > 1 {
		m.lookTogether(ctx, attempts)
	}
	if err := m.intend(ctx, st, attempts, undo); err != nil {
		return err
	}
	if len(attempts) > 1 {
		return m.doTogether(ctx, st, attempts, undo)
	}
	a := &attempts[0]
	if !a.done {
		var err error
		if a.record.Data, err = m.do(ctx, a.action, a.before); err != nil {
			return m.actionFailed(ctx, st, a.action, a.record, true, err)
		}
	}
	return m.append(ctx, a.record)
}

// intend observes and writes the intents. The inverse comes from the first observation: later ones may already see the
// action's own effects.
func (m *machine) intend(ctx context.Context, st step.Step, attempts []attempt, undo bool) error {
	var intents []Record
	for i := range attempts {
		a := &attempts[i]
		if !a.looked {
			var err error
			if a.seen, err = m.observe(ctx, a.action, a.before); err != nil {
				return m.actionFailed(ctx, st, a.action, a.record, a.known.open(), err)
			}
		}
		if a.known.open() {
			a.record.Data = a.seen.Before // if it is done already, no other record has its answer
		} else {
			intents = append(intents, intent(st, a.action, undo, a.seen, a.known))
		}
		if a.done = a.seen.Done; a.done {
			a.record.Result = ResultAlready
		}
	}
	if err := m.append(ctx, intents...); err != nil {
		return err
	}
	for i := range attempts {
		attempts[i].before = m.state.Find(st.ID).action(attempts[i].action.ID, undo).Before
	}
	return nil
}

// intent is the record before an action.
func intent(st step.Step, action step.Action, undo bool, seen Observation, known *ActionState) Record {
	r := Record{Event: Intended, Step: st.ID, Action: action.ID, Undo: undo, Before: seen.Before}
	switch {
	case undo:
	case known != nil:
		r.Inverse = known.Inverse
	case !seen.Done && seen.Inverse != nil: // an effect that was there before is not undone
		inverse := *seen.Inverse
		inverse.ID = action.ID + "/undo"
		if inverse.Title == "" {
			inverse.Title = "undo: " + action.Title
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

// try does an action once, within its timeout. It does not touch the machine, so that several actions may be tried at
// once.
func (m *machine) try(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error) {
	limit := time.Duration(action.Timeout)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := m.deps.Actor.Do(bounded, action, before)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		// An expired deadline is a temporary error, but an action that exceeds its timeout has failed.
		return answer, WithHint(fmt.Errorf("not finished within %s: %s", limit, err.Error()), HintOf(err))
	}
	return answer, err
}

// actionFailed writes the outcome of a failed action, if its intent was written.
func (m *machine) actionFailed(ctx context.Context, st step.Step, action step.Action, record Record,
	intended bool, err error) error {
	failed := m.failed(st, name(action), err)
	var cause *failure
	if !errors.As(failed, &cause) || !intended {
		return failed
	}
	record.Result, record.Error = ResultFailed, err.Error()
	if action.Verb() != step.VerbAdopt && action.Op() != step.OpEvict {
		record.Data = nil // only these say pod by pod what became of it, although some failed
	}
	if err := m.append(ctx, record); err != nil {
		return err
	}
	return failed
}

// failed turns an error into a failure of the step, unless the error only ends the run.
func (m *machine) failed(st step.Step, what string, err error) error {
	var tired *gaveUp
	var fails *failure
	if errors.Is(err, errInterrupted) || errors.As(err, &tired) || errors.As(err, &fails) {
		return err
	}
	return &failure{st.ID, fmt.Sprintf("%s: %v", what, err), HintOf(err)}
}

// gate asks for fresh evidence. No evidence is a failure.
func (m *machine) gate(ctx context.Context, st step.Step) error {
	if known := m.state.Find(st.ID); st.Gate == nil || known.Verdict != nil && (known.Verdict.Pass || st.Gate.Result) {
		return nil
	}
	if err := m.followDesire(ctx); err != nil {
		return err
	}
	if err := m.append(ctx, Record{Event: GateAsked, Step: st.ID}); err != nil {
		return err
	}
	asked := *st.Gate
	asked.Step = st.ID
	if asked.Compare {
		asked.Changed = m.changed(st.ID)
	}
	if asked.Near {
		asked.About = st.Nodes()
	}
	var verdict Verdict
	var left error // a pause, a rollback or a stop that was requested meanwhile
	err := m.patiently(ctx, "asking the gate of "+st.ID, func(ctx context.Context) (err error) {
		read := m.deps.Clock.Now()
		verdict, err = m.deps.Gate.Ask(ctx, asked, func(ctx context.Context) error {
			if now := m.deps.Clock.Now(); m.stopped() || now.Sub(read) >= desireInterval {
				left, read = m.followDesire(ctx), now
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
	if !verdict.Pass && !st.Gate.Result {
		return &failure{st.ID, fmt.Sprintf("the gate of step %s failed: %s", st.ID, verdict.Reason), ""}
	}
	return nil
}

// changed are the nodes of the steps up to this one.
func (m *machine) changed(id string) []string {
	var nodes []string
	for _, st := range m.plan.Steps {
		if st.Node != "" {
			nodes = append(nodes, st.Node)
		}
		if st.ID == id {
			break
		}
	}
	return nodes
}

// name is an action's name in messages.
func name(action step.Action) string {
	if action.Title != "" {
		return action.Title
	}
	return "action " + action.ID
}
