package engine

import (
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Standing is where a migration stands, and which ways lead on from there. Everything that a person is told about that (status, hints,
// refusals) is said from it.
type Standing struct {
	// Word is the state in a word or two: that of the journal, and "interrupted" where it says running and nobody runs it.
	Word string
	// Since is the time of the last record.
	Since time.Time
	// Resume and Rollback say what these commands would do; Rollback is empty where it is refused, both where all is over.
	Resume, Rollback string
	// Ways says both in one sentence; empty where all is over.
	Ways string
	// Gate is the gate that is measured or that failed last, "" when there is none; Waits what it says.
	Gate, Waits string
	// Left is what the steps that are not done are estimated to take, in the direction of the run; 0 where that is not known.
	Left time.Duration
}

// Judge says where a migration stands by its journal. held is true while somebody runs it.
func Judge(steps []step.Step, s State, held bool) Standing {
	now := Standing{Word: string(s.Phase), Since: s.At}
	if (s.Phase == PhaseRunning || s.Phase == PhaseRollingBack) && !held {
		now.Word = "interrupted"
		if s.Undoing {
			now.Word = "interrupted on the way back"
		}
	}
	now.gate(steps, s)
	if s.Over() {
		return now
	}
	now.left(steps, s)
	switch {
	case s.Undoing:
		now.Resume, now.Rollback = "goes on with the rollback", "goes on with the rollback"
		now.Ways = "`theseus resume` goes on with the rollback"
	case s.Back != "":
		now.Resume = "takes the step " + s.Back + " back alone, and then stops for a person"
		now.Ways = "the point of no return is behind: `theseus resume` " + now.Resume + "; there is no rollback"
	case s.PastReturn(steps):
		now.Resume = "goes on"
		now.Ways = "the point of no return is behind: `theseus resume` goes on; there is no rollback"
	default:
		now.Resume, now.Rollback = "goes on", "takes everything back"
		now.Ways = "`theseus resume` goes on, `theseus rollback` takes everything back"
	}
	return now
}

// gate finds what is measured, or failed last, in the step at hand.
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
	if s.Undoing {
		return // what taking back takes was never estimated
	}
	for i := range steps {
		if known := s.Find(steps[i].ID); known == nil || !known.Done {
			n.Left += time.Duration(steps[i].Estimate)
		}
	}
}
