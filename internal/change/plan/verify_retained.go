package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// retaining says whether an action has a node retain routes, or let go of them.
func retaining(a *step.Action) bool {
	return a.Op == step.Node && (a.Verb == step.VerbRetain || a.Verb == step.VerbLetGo)
}

func retainsAny(actions []step.Action) bool {
	return slices.ContainsFunc(actions, func(a step.Action) bool { return retaining(&a) })
}

// retention is which ranges nodes retain the routes of, and what is done only while all of them do: its words for an action that
// is that, or none.
func (p *Plan) retention() (ranges []string, meanwhile func(*step.Action) string) {
	if p.Reflectors != nil {
		return p.Reflectors.Ranges, func(a *step.Action) string {
			if foreign(a) {
				return "BGP is changed"
			}
			return ""
		}
	}
	return p.Retain, func(a *step.Action) string {
		if len(p.Retain) > 0 && a.Op == step.Restart && *a.Ref == p.Source.Agent {
			return "an agent restarts"
		}
		return ""
	}
}

// verifyRetained proves of plans that end BIRD's sessions, or restart agents with BIRD: that is done, there and back, only while
// every node retains the routes that BIRD carries; what a step did of that its undo takes back, and its gate sees; and at the end no node
// retains any.
func verifyRetained(p *Plan) error {
	nodes, retained, measured := p.Cluster.Nodes, map[string]bool{}, false
	ranges, meanwhile := p.retention()
	carry := func(actions []step.Action, retained map[string]bool) error {
		for i := range actions {
			a := &actions[i]
			if retaining(a) {
				if err := retains(a, nodes, ranges, retained); err != nil {
					return err
				}
			} else if words := meanwhile(a); words != "" && len(retained) < len(nodes) {
				return fmt.Errorf("%s while %d of %d nodes retain their routes", words, len(retained), len(nodes))
			}
		}
		return nil
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		before, back := retained, retained
		changes := retainsAny(s.Actions) || retainsAny(s.Undo)
		if changes { // as few steps do: a copy of all nodes for each would be felt in a large cluster
			retained = maps.Clone(before)
		}
		if err := carry(s.Actions, retained); err != nil {
			return fmt.Errorf("step %s: %w", s.ID, err)
		}
		if changes {
			back = maps.Clone(retained)
		}
		if err := carry(s.Undo, back); err != nil {
			return fmt.Errorf("undo of step %s: %w", s.ID, err)
		}
		switch {
		case !changes:
		case !maps.Equal(before, back):
			return fmt.Errorf("undo of step %s: the nodes do not retain what they did", s.ID)
		case !maps.Equal(before, retained) && (!measured || s.Gate == nil || s.NoReturn):
			return fmt.Errorf("step %s: it changes which routes serve, and has no gate or no way back", s.ID)
		}
		measured = measured || s.Gate != nil && s.Gate.Baseline
	}
	if len(retained) > 0 {
		return errors.New("at the end nodes retain routes")
	}
	return nil
}

// retains has a node of those given retain its routes within ranges, or let go of them.
func retains(a *step.Action, nodes, ranges []string, retained map[string]bool) error {
	var args step.RetainArgs
	switch err := json.Unmarshal(a.Args, &args); {
	case err != nil:
		return fmt.Errorf("arguments: %w", err)
	case !slices.Contains(nodes, a.NodeName):
		return fmt.Errorf("node %q is not of this cluster", a.NodeName)
	case !slices.Equal(args.Within, ranges):
		return fmt.Errorf("the ranges are %v, not %v", ranges, args.Within)
	}
	if a.Verb == step.VerbRetain {
		retained[a.NodeName] = true
	} else {
		delete(retained, a.NodeName)
	}
	return nil
}
