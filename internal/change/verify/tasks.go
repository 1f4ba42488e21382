package verify

import (
	"encoding/json"
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// allowedTasks refuses a plan with a task that agents refuse: one that names what no network leaves on a node. Tasks of
// many nodes are the same, and are judged once.
func allowedTasks() kind.Rule {
	judged := map[string]map[string]bool{} // those that are allowed, by verb and arguments
	refused := func(s *step.Step) error {
		for _, actions := range [][]step.Action{s.Actions, s.Undo} {
			for i := range actions {
				a := &actions[i]
				do, is := a.Do.(step.Node)
				if !is || judged[do.Verb][string(do.Args)] {
					continue
				}
				if err := allowed(a); err != nil {
					return fmt.Errorf("action %s: %w", a.ID, err)
				}
				if judged[do.Verb] == nil {
					judged[do.Verb] = map[string]bool{}
				}
				judged[do.Verb][string(do.Args)] = true
			}
		}
		return nil
	}
	return kind.Rule{Before: refused}
}

// allowed judges the task of an action on a node: what reaches the agent. Keys of Node objects do not: the engine
// removes them.
func allowed(a *step.Action) error {
	args := a.Args()
	if step.Takes[step.Residue](a.Verb()) {
		residue, err := step.Arguments[step.Residue](*a)
		if err != nil {
			return err
		}
		host, _ := residue.Split()
		if args, err = json.Marshal(host); err != nil {
			return err
		}
	}
	return step.Allowed(a.Verb(), args)
}
