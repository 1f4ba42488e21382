package engine

import (
	"encoding/json"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Phase is the phase of a run.
type Phase string

// The phases of a run. Done and rolled back are final; from the others a run can continue.
const (
	PhaseNew         Phase = "new" // no record yet
	PhaseRunning     Phase = "running"
	PhaseRollingBack Phase = "rolling-back"
	PhasePaused      Phase = "paused"
	PhaseNeedsPerson Phase = "needs-person"
	PhaseDone        Phase = "done"
	PhaseRolledBack  Phase = "rolled-back"
)

// State is a replayed journal: everything that the engine needs to continue, and that status shows.
type State struct {
	// Seq is the last record's; 0 for an empty journal.
	Seq int
	// Head is the chain of the last record: it stands for the whole journal, and the plan.
	Head  string
	Start Start
	Phase Phase
	// Undoing is true from the record RollingBack on, also while the run is paused or needs a person.
	Undoing bool
	// Back is the step that is being undone alone; "" if none is.
	Back string
	// Asked is true if the operator requested the rollback, false if a failure caused it.
	Asked bool
	// Held is why a paused run continues by itself: ResultOutsideWindow or ResultFrozen; or ResultWindowEnded or
	// ResultMeasuring; "" if a person or the cluster has paused it.
	Held string
	// Cause says why the run does not continue, or else why it rolls back.
	Cause string
	// rollback is why the run rolls back, whatever stopped it meanwhile.
	rollback string
	// Step and Action are those of the last record with a step.
	Step   string
	Action string
	// Steps are those begun, in the order in which they began.
	Steps []StepState
	// StartedAt and At are the times of the first and the last record.
	StartedAt time.Time
	At        time.Time
	// By is who ran the engine last, and Epoch that of the lock which they held.
	By    string
	Epoch int64

	begun map[string]int // places of steps, for hasBegun alone: copies of a state share it
}

// StepState is what was journaled about one step.
type StepState struct {
	ID        string
	BeganAt   time.Time
	EndedAt   time.Time // of StepDone, or of StepUndone
	Done      bool
	Undone    bool
	Actions   []ActionState // forward, in the order intended
	Undo      []ActionState // of the rollback
	GateAsked bool
	// Verdict is the gate's last answer.
	Verdict *Verdict

	places map[place]int // of all actions
}

// ActionState is what was journaled about one action.
type ActionState struct {
	ID string
	// Seq is that of the first intent.
	Seq int
	// Inverse is from the first intent, before the action started; later observations do not change it.
	Inverse *step.Action
	// Before is from the first intent, too; it is empty once the action is settled.
	Before json.RawMessage
	// Result is "" while the outcome is not known: between the intent and its outcome.
	Result string
	Error  string
}

// Over is true if the run has ended.
func (s State) Over() bool { return s.Phase == PhaseDone || s.Phase == PhaseRolledBack }

// End is when the run ended; zero before.
func (s State) End() time.Time {
	if !s.Over() {
		return time.Time{}
	}
	return s.At
}

// Measures is true while the run stands between two steps, and measures changes that others make.
func (s State) Measures() bool { return s.Phase == PhasePaused && s.Held == ResultMeasuring }

// Waits is true while the run stands until a person continues it.
func (s State) Waits() bool {
	return s.Phase == PhaseNeedsPerson || s.Phase == PhasePaused && (s.Held == "" || s.Held == ResultWindowEnded)
}

// DoneSteps counts the steps that are done and not undone.
func (s State) DoneSteps() int {
	n := 0
	for _, st := range s.Steps {
		if st.Done && !st.Undone {
			n++
		}
	}
	return n
}

// Find is the state of a step, or nil if it never began.
func (s *State) Find(id string) *StepState {
	for i := len(s.Steps) - 1; i >= 0; i-- {
		if s.Steps[i].ID == id {
			return &s.Steps[i]
		}
	}
	return nil
}

// hasBegun reports whether a step has begun. Unlike Find, it does not look through all steps, of which a large plan has
// thousands. It is only for the one that adds records.
func (s *State) hasBegun(id string) bool {
	if s.begun == nil {
		s.begun = map[string]int{}
		for i := range s.Steps {
			s.begun[s.Steps[i].ID] = i
		}
	}
	at, known := s.begun[id]
	if !known || at < len(s.Steps) && s.Steps[at].ID == id {
		return known
	}
	return s.Find(id) != nil // a step that was undone alone, or one of a copy that was dropped
}

// PastReturn is true once an action of a step marked NoReturn, or of a later one, was intended. A step that has begun
// but only waited has changed nothing, so a rollback is still possible then.
func (s State) PastReturn(steps []step.Step) bool {
	marked := false
	for _, st := range steps {
		marked = marked || st.NoReturn
		if !marked {
			continue
		}
		if known := s.Find(st.ID); known != nil && len(known.Actions) > 0 {
			return true
		}
	}
	return false
}

// settled is true if the action has succeeded.
func (a *ActionState) settled() bool {
	return a != nil && (a.Result == ResultDone || a.Result == ResultAlready)
}

// open is true between an intent and its outcome.
func (a *ActionState) open() bool { return a != nil && a.Result == "" }

// action is what was journaled about an action, or nil. It does not look through the list: a step has as many actions
// as a large cluster has nodes, or several times as many, and each is asked for with every record.
func (s *StepState) action(id string, undo bool) *ActionState {
	list := s.Actions
	if undo {
		list = s.Undo
	}
	at, known := s.places[place{id, undo}]
	// a copy of the state was dropped together with what was added to it
	if !known || at >= len(list) || list[at].ID != id {
		return nil
	}
	return &list[at]
}

// add adds an action to a list.
func (s *StepState) add(action ActionState, undo bool) {
	list := &s.Actions
	if undo {
		list = &s.Undo
	}
	if s.places == nil {
		s.places = map[place]int{}
	}
	s.places[place{action.ID, undo}] = len(*list)
	*list = append(*list, action)
}

// place is what an index in a list of actions is known by.
type place struct {
	id   string
	undo bool
}
