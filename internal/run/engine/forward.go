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
			return &failure{st.ID, fmt.Sprintf("step %s: %s: %s, for %s", st.ID, when, missing, waited.Round(time.Second)), ""}
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

// carryOut does what is not settled yet of a step's actions, or of those that take it back, in their order; those that are beside
// one another together.
func (m *machine) carryOut(ctx context.Context, st step.Step, actions []step.Action, undo bool) error {
	for len(actions) > 0 {
		n := 1
		for n < len(actions) && actions[n].Beside {
			n++
		}
		group := m.unsettled(st, actions[:n], undo)
		actions = actions[n:]
		if len(group) == 0 {
			continue
		}
		if err := m.heed(ctx); err != nil {
			return err
		}
		if err := m.act(ctx, st, undo, group...); err != nil {
			return err
		}
	}
	return nil
}

// unsettled are the actions that still need something.
func (m *machine) unsettled(st step.Step, actions []step.Action, undo bool) []step.Action {
	var left []step.Action
	for _, action := range actions {
		if !m.state.Find(st.ID).action(action.ID, undo).settled() {
			left = append(left, action)
		}
	}
	return left
}

// deed is an action under way.
type deed struct {
	action step.Action
	known  *ActionState // what the journal says of it
	seen   Observation
	looked bool   // seen is the answer of a first look that went well
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
		if action.Timeout <= 0 {
			action.Timeout = step.Duration(m.deps.ActionTimeout)
		}
		deeds[i] = deed{action: action, known: m.state.Find(st.ID).action(action.ID, undo),
			record: Record{Event: Acted, Step: st.ID, Action: action.ID, Undo: undo, Result: ResultDone}}
		if known := deeds[i].known; known != nil {
			deeds[i].before = known.Before
		}
	}
	together := len(deeds) > 1
	if together {
		m.lookTogether(ctx, deeds)
	}
	if err := m.intend(ctx, st, deeds, undo); err != nil {
		return err
	}
	if together {
		m.tryTogether(ctx, deeds)
	}
	var good []Record
	var rest []*deed
	for i := range deeds {
		if d := &deeds[i]; d.done || together && d.err == nil {
			good = append(good, d.record)
		} else {
			rest = append(rest, d)
		}
	}
	if err := m.append(ctx, good...); err != nil {
		return err
	}
	var first error
	for _, d := range rest {
		err := m.finish(ctx, st, d, together)
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

// intend looks and writes the intents. The inverse is what the first look said: after it, the world may already
// carry the action's own traces.
func (m *machine) intend(ctx context.Context, st step.Step, deeds []deed, undo bool) error {
	var intents []Record
	for i := range deeds {
		d := &deeds[i]
		if !d.looked {
			var err error
			if d.seen, err = m.observe(ctx, d.action, d.before); err != nil {
				return m.actionFailed(ctx, st, d.action, d.record, d.known.open(), err)
			}
		}
		if d.known.open() {
			d.record.Data = d.seen.Before // where it is done already, this is the only trace of its answer
		} else {
			intents = append(intents, intent(st, d.action, undo, d.seen, d.known))
		}
		if d.done = d.seen.Done; d.done {
			d.record.Result = ResultAlready
		}
	}
	if err := m.append(ctx, intents...); err != nil {
		return err
	}
	for i := range deeds {
		deeds[i].before = m.state.Find(st.ID).action(deeds[i].action.ID, undo).Before
	}
	return nil
}

// lookTogether takes a first look at several actions. What goes wrong is left to a second one.
func (m *machine) lookTogether(ctx context.Context, deeds []deed) {
	var calls []func()
	for i := range deeds {
		d := &deeds[i]
		calls = append(calls, func() {
			seen, err := m.deps.Actor.Observe(ctx, d.action, d.before)
			d.seen, d.looked = seen, err == nil
		})
	}
	m.together(calls)
}

// tryTogether makes the first try of each action that is not done.
func (m *machine) tryTogether(ctx context.Context, deeds []deed) {
	var calls []func()
	for i := range deeds {
		if d := &deeds[i]; !d.done {
			calls = append(calls, func() { d.record.Data, d.err = m.try(ctx, d.action, d.before) })
		}
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

// finish does what is not done, or what an outage kept the first try from, and writes the outcome.
func (m *machine) finish(ctx context.Context, st step.Step, d *deed, tried bool) error {
	if !tried || d.err != nil && (ctx.Err() != nil || transient(d.err)) {
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
		return answer, WithHint(fmt.Errorf("not finished within %s: %s", limit, err.Error()), HintOf(err))
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
	return &failure{st.ID, fmt.Sprintf("%s: %v", what, err), HintOf(err)}
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
	asked := *st.Gate
	if asked.Compare {
		asked.Changed = m.changed(st.ID)
	}
	var verdict Verdict
	var left error // a pause, a rollback or a stop that was asked for meanwhile
	err := m.patiently(ctx, "asking the gate of "+st.ID, func(ctx context.Context) (err error) {
		heeded := m.deps.Clock.Now()
		verdict, err = m.deps.Gate.Ask(ctx, asked, func(ctx context.Context) error {
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
		return &failure{st.ID, fmt.Sprintf("the gate of step %s did not pass: %s", st.ID, verdict.Reason), ""}
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

// name is what an action is called in messages.
func name(action step.Action) string {
	if action.Title != "" {
		return action.Title
	}
	return "action " + action.ID
}
