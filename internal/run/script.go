package run

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Script describes a plan's steps and actions, and the records of its journal, for people.
type Script struct {
	steps   map[string]*step.Step
	index   map[string]int
	actions map[string]*step.Action
	total   int
}

// NewScript returns the script of a plan.
func NewScript(p *plan.Plan) *Script {
	s := &Script{steps: map[string]*step.Step{}, index: map[string]int{},
		actions: map[string]*step.Action{}, total: len(p.Steps)}
	for i := range p.Steps {
		one := &p.Steps[i]
		s.steps[one.ID], s.index[one.ID] = one, i+1
		for _, list := range [][]step.Action{one.Actions, one.Undo} {
			for j := range list {
				s.actions[list[j].ID] = &list[j]
			}
		}
	}
	return s
}

// Describe describes a record; empty for records that people do not need.
func (s *Script) Describe(r engine.Record) string {
	action := s.Action(r)
	title := r.Step
	if one := s.steps[r.Step]; one != nil {
		title = one.Title
	}
	switch r.Event {
	case engine.Started:
		return "started"
	case engine.StepBegan:
		return s.Place(r.Step)
	case engine.Acted:
		return "        " + acted(action, r)
	case engine.GateAnswer:
		mark := "pass"
		if r.Verdict != nil && !r.Verdict.Pass {
			mark = "FAIL"
		}
		if r.Verdict == nil {
			return "        gate: " + r.Error
		}
		return fmt.Sprintf("        gate: %s: %s", mark, r.Verdict.Reason)
	case engine.Paused:
		switch r.Result {
		case "":
		case engine.ResultMeasuring:
			return r.Error
		default: // it ends by itself
			return "paused: " + r.Error
		}
		return "paused" + asked(r) + ": all pods stay connected; theseus status says how to continue"
	case engine.Marked:
		return "mark: " + engine.MarkOf(r)
	case engine.Resumed:
		return "resumed by " + r.By + asked(r)
	case engine.RollingBack:
		return "rolling back" + asked(r) + ": " + r.Error
	case engine.TakingBack:
		return "undoing only this step: " + r.Error
	case engine.StepUndone:
		return "        undone: " + title
	case engine.Finished:
		return "finished: " + r.Result
	}
	return ""
}

// asked says who asked for what a record does; empty if that is not known.
func asked(r engine.Record) string {
	if user := engine.AskedBy(r); user != "" {
		return ", asked by " + user
	}
	return ""
}

// Place is a step's number in the plan, and its title.
func (s *Script) Place(id string) string {
	if one := s.steps[id]; one != nil {
		return fmt.Sprintf("[%d/%d] %s", s.index[id], s.total, one.Title)
	}
	return id
}

// Learn records the inverses of actions, to name them in a rollback.
func (s *Script) Learn(records []engine.Record) {
	for _, r := range records {
		if r.Inverse != nil {
			s.actions[r.Inverse.ID] = r.Inverse
		}
	}
}

// Action is the title of the action that a record is about.
func (s *Script) Action(r engine.Record) string {
	s.Learn([]engine.Record{r})
	if action := s.actions[r.Action]; action != nil {
		return action.Title
	}
	return r.Action
}

func acted(title string, r engine.Record) string {
	switch r.Result {
	case "already":
		return title + ": already done"
	case "failed":
		return title + ": FAILED: " + r.Error
	}
	return title
}

// Step is the step with an id; nil if the plan has none.
func (s *Script) Step(id string) *step.Step { return s.steps[id] }

// Index counts a step from 1.
func (s *Script) Index(id string) int { return s.index[id] }

// Total is how many steps there are.
func (s *Script) Total() int { return s.total }

// Find is the action with an id, or an inverse that Learn recorded; nil if neither is known.
func (s *Script) Find(id string) *step.Action { return s.actions[id] }
