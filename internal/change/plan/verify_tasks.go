package plan

import (
	"encoding/json"
	"fmt"

	"github.com/theseus-cni/theseus/internal/step"
)

// verifyTasks refuses a plan with a task that agents refuse: one that names what no network leaves on a node.
func verifyTasks(p *Plan) error {
	for _, s := range p.Steps {
		for _, actions := range [][]step.Action{s.Actions, s.Undo} {
			for i := range actions {
				if err := allowed(&actions[i]); err != nil {
					return fmt.Errorf("step %s: action %s: %w", s.ID, actions[i].ID, err)
				}
			}
		}
	}
	return nil
}

// allowed judges what reaches the agent. Keys of Node objects do not: the engine removes them.
func allowed(a *step.Action) error {
	if a.Op != step.Node {
		return nil
	}
	args := a.Args
	if a.Verb == step.VerbInventory || a.Verb == step.VerbClean {
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
