package verify

import (
	"encoding/json"
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// allowedTasks refuses a plan with a task that agents refuse: one that names what no network leaves on a node.
func allowedTasks() kind.Rule {
	refused := func(s *step.Step) error {
		for _, actions := range [][]step.Action{s.Actions, s.Undo} {
			for i := range actions {
				if err := allowed(&actions[i]); err != nil {
					return fmt.Errorf("action %s: %w", actions[i].ID, err)
				}
			}
		}
		return nil
	}
	return kind.Rule{Before: refused}
}

// allowed judges what reaches the agent. Keys of Node objects do not: the engine removes them.
func allowed(a *step.Action) error {
	if a.Op != step.Node {
		return nil
	}
	args := a.Args
	if step.Takes[step.Residue](a.Verb) {
		residue, err := step.Arguments[step.Residue](*a)
		if err != nil {
			return err
		}
		host, _ := residue.Split()
		if args, err = json.Marshal(host); err != nil {
			return err
		}
	}
	return step.Allowed(a.Verb, args)
}
