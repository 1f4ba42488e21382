package engine

import (
	"encoding/json"
	"fmt"
)

// Replay reads a journal from its beginning. It refuses a journal that no run can have written: with a missing record,
// an unknown event, or an impossible order.
func Replay(records []Record) (State, error) {
	state := State{Phase: PhaseNew}
	for _, record := range records {
		if err := state.Add(record); err != nil {
			return State{}, err
		}
	}
	return state, nil
}

// Add applies the next record.
func (s *State) Add(r Record) error {
	if err := s.admits(r); err != nil {
		return err
	}
	if err := s.take(r); err != nil {
		return WithHint(fmt.Errorf("journal: record %d (%s): %w", r.Seq, r.Event, err),
			"the journal is damaged or was edited: compare the copy in the cluster with the local file")
	}
	s.Seq, s.At, s.Epoch, s.Head = r.Seq, r.At, r.Epoch, r.Chain
	if r.By != "" && r.Event != Marked {
		s.By = r.By
	}
	if r.Step != "" {
		s.Step, s.Action = r.Step, r.Action
	}
	return nil
}

// admits checks what holds for every kind of record.
func (s *State) admits(r Record) error {
	if r.Seq != s.Seq+1 {
		return WithHint(fmt.Errorf("journal: record %d follows record %d", r.Seq, s.Seq),
			"records are missing: take the other copy of the journal (the cluster's, or the local file)")
	}
	var err error
	switch {
	case (r.Event == Started) != (s.Phase == PhaseNew):
		err = fmt.Errorf("a journal has exactly one record %q, its first", Started)
	case s.Over():
		err = fmt.Errorf("the run has ended (%s)", s.Phase)
	case r.Epoch < s.Epoch:
		err = fmt.Errorf("its writer held the lock in epoch %d, but a later holder has written since (epoch %d)",
			r.Epoch, s.Epoch)
	case (s.Phase == PhasePaused || s.Phase == PhaseNeedsPerson) && r.Event != Resumed && r.Event != Marked:
		err = fmt.Errorf("the run does not continue (%s)", s.Phase)
	default:
		return nil
	}
	return WithHint(fmt.Errorf("journal: record %d (%s): %w", r.Seq, r.Event, err),
		"the journal is damaged, or two engines wrote it: compare the copy in the cluster with the local file")
}

func (s *State) take(r Record) error {
	switch r.Event {
	case Started:
		s.Phase, s.StartedAt = PhaseRunning, r.At
		if err := json.Unmarshal(r.Data, &s.Start); err != nil {
			return fmt.Errorf("reading its data: %w", err)
		}
		return nil
	case Paused:
		s.Phase, s.Cause, s.Held = PhasePaused, r.Error, r.Result
		return nil
	case Resumed:
		s.Held = ""
		if s.Phase = PhaseRunning; s.Back == "" {
			s.Cause = s.rollback
		}
		if s.Undoing {
			s.Phase = PhaseRollingBack
		}
		return nil
	case RollingBack:
		if s.Undoing {
			return fmt.Errorf("the run is already rolling back")
		}
		s.Undoing, s.Phase, s.Asked = true, PhaseRollingBack, r.Result == ResultAsked
		s.Cause, s.rollback, s.Back = r.Error, r.Error, ""
		return nil
	case TakingBack:
		if st := s.Find(r.Step); s.Undoing || s.Back != "" || st == nil || st.Done {
			return fmt.Errorf("step %q cannot be undone alone: it is not the current step", r.Step)
		}
		s.Back, s.Cause = r.Step, r.Error
		return nil
	case Finished:
		return s.finish(r)
	case Marked:
		return nil
	case StepBegan:
		return s.begin(r)
	case Intended, Acted, GateAsked, GateAnswer, StepDone, StepUndone:
		return s.within(r)
	}
	return fmt.Errorf("unknown event; a newer Theseus may have written it")
}

func (s *State) finish(r Record) error {
	switch r.Result {
	case ResultDone:
		s.Phase, s.Cause = PhaseDone, ""
	case ResultRolledBack:
		s.Phase = PhaseRolledBack
	case ResultNeedsPerson:
		s.Phase, s.Cause = PhaseNeedsPerson, r.Error
	default:
		return fmt.Errorf("unknown result %q", r.Result)
	}
	return nil
}

func (s *State) begin(r Record) error {
	if s.Undoing {
		return fmt.Errorf("step %q begins during a rollback", r.Step)
	}
	if n := len(s.Steps); n > 0 && !s.Steps[n-1].Done {
		return fmt.Errorf("step %q begins before %q is done", r.Step, s.Steps[n-1].ID)
	}
	if s.hasBegun(r.Step) {
		return fmt.Errorf("step %q begins twice", r.Step)
	}
	s.begun[r.Step] = len(s.Steps)
	s.Steps = append(s.Steps, StepState{ID: r.Step, BeganAt: r.At})
	return nil
}

// within applies a record about a step that has begun.
func (s *State) within(r Record) error {
	st := s.Find(r.Step)
	if st == nil {
		return fmt.Errorf("step %q never began", r.Step)
	}
	back := r.Undo || r.Event == StepUndone
	switch {
	case back != (s.Undoing || s.Back == r.Step):
		return fmt.Errorf("step %q: its direction differs from the run's", r.Step)
	case !back && st.Done:
		return fmt.Errorf("step %q is done", r.Step)
	case st.Undone:
		return fmt.Errorf("step %q is undone", r.Step)
	}
	switch r.Event {
	case Intended:
		return st.intend(r)
	case Acted:
		return st.act(r)
	case GateAsked:
		st.GateAsked, st.Verdict = true, nil
	case GateAnswer:
		if !st.GateAsked || r.Verdict == nil {
			return fmt.Errorf("step %q: a gate's answer without its question, or without a verdict", r.Step)
		}
		st.Verdict = r.Verdict
	case StepDone:
		st.Done, st.EndedAt = true, r.At
	case StepUndone:
		if s.Back == r.Step { // as if it had never begun; a person decides first
			s.Steps, s.Back, s.Phase = s.Steps[:len(s.Steps)-1], "", PhaseNeedsPerson
			return nil
		}
		st.Undone, st.EndedAt = true, r.At
	}
	return nil
}

func (s *StepState) intend(r Record) error {
	known := s.action(r.Action, r.Undo)
	switch {
	case known == nil && r.Undo:
		s.add(ActionState{ID: r.Action, Seq: r.Seq, Before: r.Before}, true)
	case known == nil:
		s.add(ActionState{ID: r.Action, Seq: r.Seq, Inverse: r.Inverse, Before: r.Before}, false)
	case known.Result == ResultFailed:
		known.Result, known.Error = "", "" // tried again; the first observation stays
	default:
		return fmt.Errorf("action %q is intended twice", r.Action)
	}
	return nil
}

func (s *StepState) act(r Record) error {
	known := s.action(r.Action, r.Undo)
	if !known.open() {
		return fmt.Errorf("action %q has an outcome without an intent", r.Action)
	}
	switch r.Result {
	case ResultDone, ResultAlready, ResultFailed:
		known.Result, known.Error = r.Result, r.Error
		if known.settled() {
			known.Before = nil
		}
		return nil
	}
	return fmt.Errorf("unknown result %q", r.Result)
}
