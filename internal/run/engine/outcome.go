package engine

import (
	"strings"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

// End is how a run ended.
type End string

// The ends of a run.
const (
	// EndDone: every step is done.
	EndDone End = "done"
	// EndRolledBack: a gate or an action failed before the point of no return, and every step was undone.
	EndRolledBack End = "rolled-back"
	// EndStopped: the operator requested a rollback, and every step was undone.
	EndStopped End = "stopped"
	// EndPaused: the operator requested a pause.
	EndPaused End = "paused"
	// EndNeedsPerson: the run failed where it cannot, or must not, roll back by itself. It can be resumed.
	EndNeedsPerson End = "needs-person"
	// EndInterrupted: the context ended. It can be resumed.
	EndInterrupted End = "interrupted"
)

// Outcome says how a run ended, and what remains to be done.
type Outcome struct {
	End End
	// Already is true if the migration had ended before this run, which then did nothing.
	Already bool
	// Step is where the run ended; Cause says why, in plain words; Hint says what a person can do next. Hint begins
	// with Advice: how to fix the cause, if the run knows.
	Step   string
	Cause  string
	Hint   string
	Advice string
	// PastReturn is true if the run is past the point of no return.
	PastReturn bool
	State      State
}

// ExitCode is the exit code that the command line promises for this end: 0 done; 4 a failure was rolled
// back; 5 stopped before the point of no return, by a rollback or a pause that was requested; 6 needs a
// person, as does a pause after the point of no return; 130 interrupted.
func (o Outcome) ExitCode() int {
	switch o.End {
	case EndDone:
		return 0
	case EndRolledBack:
		return 4
	case EndStopped:
		return 5
	case EndPaused:
		if o.PastReturn {
			return 6
		}
		return 5
	case EndInterrupted:
		return 130
	}
	return 6
}

func (m *machine) outcome(end End, cause string) Outcome {
	past := m.state.PastReturn(m.plan.Steps)
	outcome := Outcome{End: end, Step: m.state.Step, Cause: cause, Hint: hintFor(end, m.plan.Steps, m.state),
		PastReturn: past, State: m.state}
	if m.advice != "" && (end == EndNeedsPerson || end == EndRolledBack) {
		outcome.Advice = m.advice
		outcome.Hint = m.advice + "; then " + strings.TrimPrefix(outcome.Hint, fixCause)
	}
	return outcome
}

// over is the outcome of a migration that has ended.
func (m *machine) over() Outcome {
	switch {
	case m.state.Phase == PhaseDone:
		return m.outcome(EndDone, "")
	case m.state.Asked:
		return m.outcome(EndStopped, m.state.Cause)
	}
	return m.outcome(EndRolledBack, m.state.Cause)
}

// Ended is how a run ended, as its journal says; false while it goes on, or can go on without a person. Only the
// process that ran it knows the Advice.
func Ended(p *plan.Plan, s State) (Outcome, bool) {
	m := &machine{plan: p, state: s}
	switch {
	case s.Over():
		return m.over(), true
	case s.Phase == PhaseNeedsPerson:
		return m.outcome(EndNeedsPerson, s.Cause), true
	}
	return Outcome{}, false
}

// fixCause begins a hint if the run does not know how to fix the cause.
const fixCause = "fix the cause, "

func hintFor(end End, steps []step.Step, s State) string {
	switch {
	case end == EndDone:
		return ""
	case end == EndRolledBack:
		return fixCause + "make a new plan, and apply it; `theseus report` shows what was measured"
	case end == EndStopped:
		return "make a new plan to start again"
	}
	return Judge(steps, s, false).Ways
}
