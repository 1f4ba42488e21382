package engine

import (
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Standing says how far a migration is, and how it can continue. Status, hints and refusals all use it, so that they
// say the same.
type Standing struct {
	// Word is the state in a word or two: the journal's phase, or "interrupted" if that is running and no process runs
	// it.
	Word string
	// Since is the time of the last record.
	Since time.Time
	// Resume and Rollback say what these commands would do. One is empty if it would be refused, both if the
	// migration has ended.
	Resume, Rollback string
	// Ways says both in one sentence; empty if the migration has ended.
	Ways string
	// Gate is the gate that is measuring or that failed last, "" when there is none; Waits is its last answer.
	Gate, Waits string
	// Left is the estimated time for the steps that are not done, in the direction of the run; 0 if there is no
	// estimate. A rollback is taken to need as long for a step as the step itself.
	Left time.Duration
}

// Judge derives a Standing from a migration's journal. held is true while a process runs the migration.
func Judge(steps []step.Step, s State, held bool) Standing {
	now := Standing{Word: string(s.Phase), Since: s.At}
	if (s.Phase == PhaseRunning || s.Phase == PhaseRollingBack) && !held {
		now.Word = "interrupted"
		if s.Undoing {
			now.Word = "interrupted while rolling back"
		}
	}
	if s.Measures() {
		now.Word = ResultMeasuring
	}
	now.gate(steps, s)
	if s.Over() {
		return now
	}
	now.left(steps, s)
	switch {
	case s.Undoing:
		now.Resume, now.Rollback = "continues the rollback", "continues the rollback"
		now.Ways = "`theseus resume` continues the rollback"
	case s.Back != "":
		now.Resume = "undoes only the step " + s.Back + ", and then stops for a person"
		now.Ways = "past the point of no return: `theseus resume` " + now.Resume + "; a rollback is not possible"
	case s.PastReturn(steps):
		now.Resume = "continues"
		now.Ways = "past the point of no return: `theseus resume` continues; a rollback is not possible"
	case s.Measures():
		now.Rollback = "ends the measuring without a verdict, and removes what was installed"
		now.Ways = "`theseus guard stop` gives the verdict, `theseus rollback` " + now.Rollback
	default:
		now.Resume, now.Rollback = "continues", "undoes every step"
		now.Ways = "`theseus resume` continues, `theseus rollback` undoes every step"
	}
	return now
}

// gate finds the gate of the current step that is measuring, or that failed last.
func (n *Standing) gate(steps []step.Step, s State) {
	known := s.Find(s.Step)
	if known == nil || !known.GateAsked || known.Done || s.Over() {
		return
	}
	for i := range steps {
		if steps[i].ID != s.Step || steps[i].Gate == nil {
			continue
		}
		n.Gate, n.Waits = steps[i].Gate.Title, "measuring"
		if known.Verdict != nil {
			n.Waits = known.Verdict.Reason
		}
	}
}

func (n *Standing) left(steps []step.Step, s State) {
	states := make(map[string]*StepState, len(s.Steps))
	for i := range s.Steps {
		states[s.Steps[i].ID] = &s.Steps[i]
	}
	for i := range steps {
		known := states[steps[i].ID]
		if s.Undoing && known != nil && !known.Undone || !s.Undoing && (known == nil || !known.Done) {
			n.Left += time.Duration(steps[i].Estimate)
		}
	}
}
