package engine

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

// Validate checks what the engine itself relies on: a hash, and names that are set and unique.
func Validate(p *plan.Plan) error {
	const hint = "make a new plan with `theseus plan`"
	if p.Hash == "" {
		return WithHint(fmt.Errorf("plan %q has no hash", p.Name), hint)
	}
	steps, actions := map[string]bool{}, map[string]bool{}
	for _, st := range p.Steps {
		if st.ID == "" || steps[st.ID] {
			return WithHint(fmt.Errorf("plan %q: step id %q is empty or not unique", p.Name, st.ID), hint)
		}
		steps[st.ID] = true
		for _, list := range [][]step.Action{st.Actions, st.Undo} {
			for _, action := range list {
				if action.ID == "" || actions[action.ID] {
					return WithHint(fmt.Errorf("plan %q: step %s: action id %q is empty or not unique",
						p.Name, st.ID, action.ID), hint)
				}
				actions[action.ID] = true
			}
		}
	}
	return nil
}

// Matches checks that a journal belongs to a plan.
func (s State) Matches(p *plan.Plan) error {
	if s.Start.Plan != p.Hash {
		return WithHint(fmt.Errorf("the journal belongs to another plan: its hash is %s, this plan's is %s",
			s.Start.Plan, p.Hash),
			"resume with the plan that the migration was started with: `theseus resume` takes it from the cluster")
	}
	known := map[string]bool{}
	for _, st := range p.Steps {
		known[st.ID] = true
	}
	for _, st := range s.Steps {
		if !known[st.ID] {
			return WithHint(fmt.Errorf("the journal has the step %q, but the plan does not", st.ID),
				"the plan or the journal was edited: take both from the cluster with `theseus resume`")
		}
	}
	return nil
}
