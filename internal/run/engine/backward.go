package engine

import (
	"context"

	"github.com/theseus-cni/theseus/internal/step"
)

// backward undoes the steps that have begun, the last one first.
func (m *machine) backward(ctx context.Context) error {
	for i := len(m.plan.Steps) - 1; i >= 0; i-- {
		st := m.plan.Steps[i]
		if known := m.state.Find(st.ID); known == nil || known.Undone {
			continue
		}
		if err := m.undo(ctx, st); err != nil {
			return err
		}
	}
	return m.append(ctx, Record{Event: Finished, Result: ResultRolledBack, Error: m.state.Cause})
}

// undo undoes one step.
func (m *machine) undo(ctx context.Context, st step.Step) error {
	if err := m.carryOut(ctx, st, undoOf(st, m.state.Find(st.ID)), true); err != nil {
		return err
	}
	return m.append(ctx, Record{Event: StepUndone, Step: st.ID})
}

// alone undoes only the step that failed, and leaves the rest to a person.
func (m *machine) alone(ctx context.Context) error {
	for _, st := range m.plan.Steps {
		if st.ID != m.state.Back {
			continue
		}
		if err := m.undo(ctx, st); err != nil {
			return err
		}
	}
	return &takenBack{m.state.Cause}
}

// undoOf returns the actions that undo a step: its own undo, or the inverses of everything that was intended, done or
// not, in reverse order. A step without intents has changed nothing.
func undoOf(st step.Step, known *StepState) []step.Action {
	if len(known.Actions) == 0 {
		return nil
	}
	if len(st.Undo) > 0 {
		return st.Undo
	}
	var undo []step.Action
	for i := len(known.Actions) - 1; i >= 0; i-- {
		if inverse := known.Actions[i].Inverse; inverse != nil {
			undo = append(undo, *inverse)
		}
	}
	return undo
}
