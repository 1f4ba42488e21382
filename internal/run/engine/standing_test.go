package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestLeft: the time left is that of the steps ahead, and in a rollback that of the steps not yet undone.
func TestLeft(t *testing.T) {
	const minute = step.Duration(time.Minute)
	steps := []step.Step{{ID: "a", Estimate: minute}, {ID: "b", Estimate: 2 * minute}, {ID: "c", Estimate: 4 * minute},
		{ID: "d", Estimate: 8 * minute}}
	far := []StepState{{ID: "a", Done: true}, {ID: "b", Done: true, Undone: true}, {ID: "c"}}
	for undoing, want := range map[bool]time.Duration{false: 12 * time.Minute, true: 5 * time.Minute} {
		s := State{Phase: PhaseRunning, Undoing: undoing, Steps: far}
		if got := Judge(steps, s, true).Left; got != want {
			t.Errorf("undoing %v: left is %v, want %v", undoing, got, want)
		}
	}
}

// TestOneStory walks every state of a run, and compares what is said of it: the word, the ways, the hint of an outcome,
// and whether a rollback is refused.
func TestOneStory(t *testing.T) {
	steps := []step.Step{{ID: "first"}, {ID: "last", NoReturn: true}}
	begun := []StepState{{ID: "first", Done: true}}
	past := append(begun, StepState{ID: "last", Actions: []ActionState{{ID: "a"}}})
	ends := map[Phase]End{PhaseNew: EndInterrupted, PhaseRunning: EndInterrupted,
		PhaseRollingBack: EndInterrupted, PhasePaused: EndPaused, PhaseNeedsPerson: EndNeedsPerson, PhaseDone: EndDone,
		PhaseRolledBack: EndRolledBack}
	for phase, end := range ends {
		for _, undoing := range []bool{false, true} {
			for _, far := range [][]StepState{nil, begun, past} {
				for _, back := range []string{"", "last"} {
					for _, held := range []bool{false, true} {
						s := State{Phase: phase, Undoing: undoing, Steps: far, Back: back}
						beyond := s.PastReturn(steps)
						if phase == PhaseRollingBack && !undoing || phase == PhaseRunning && undoing ||
							phase == PhaseNew && far != nil ||
							back != "" && !beyond || undoing && beyond || phase == PhaseDone && undoing {
							continue // no journal says so
						}
						name := fmt.Sprintf("%s undoing=%v past=%v back=%q held=%v", phase, undoing, beyond, back, held)
						said := Judge(steps, s, held)
						hint := hintFor(end, steps, s)
						over := phase == PhaseDone || phase == PhaseRolledBack
						switch {
						case over != (said.Ways == ""), over != (said.Resume == ""):
							t.Errorf("%s: %+v", name, said)
						case !over && hint != said.Ways:
							t.Errorf("%s: the hint is %q, and status says %q", name, hint, said.Ways)
						case !over && (said.Rollback == "") != beyond:
							t.Errorf("%s: rollback %q", name, said.Rollback)
						case strings.Contains(said.Ways, "`theseus rollback`") && said.Rollback == "":
							t.Errorf("%s: it offers what is refused: %q", name, said.Ways)
						case !over && strings.Contains(said.Ways, "a rollback is not possible") != beyond:
							t.Errorf("%s: %q", name, said.Ways)
						case strings.HasPrefix(said.Word, "interrupted") != (!held &&
							(phase == PhaseRunning || phase == PhaseRollingBack)):
							t.Errorf("%s: %q", name, said.Word)
						case back != "" && !over && !strings.Contains(said.Ways, "undoes only"):
							t.Errorf("%s: %q", name, said.Ways)
						}
					}
				}
			}
		}
	}
}
