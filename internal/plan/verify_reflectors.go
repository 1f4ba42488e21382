package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// relaying carries a model of a change of reflectors through its actions.
type relaying struct {
	plan     *Plan
	retained map[string]bool // nodes
	measured bool            // a baseline gate was passed
	changed  bool            // something of BGP was
}

// verifyReflectors proves on every prefix: nothing of BGP is touched before measuring is proven and before every node
// retains its routes; each step that touches it is gated; nodes let go of routes after all that, and at the end none retains any; and what a step did
// on nodes its undo takes back. That the graph is whole after each part was seen when the plan was made, and is demanded by its gates.
func verifyReflectors(p *Plan) error {
	if err := unique(p); err != nil {
		return err
	}
	r := &relaying{plan: p, retained: map[string]bool{}}
	for i := range p.Steps {
		s := &p.Steps[i]
		before := maps.Clone(r.retained)
		r.changed = false
		for j := range s.Actions {
			if err := r.act(&s.Actions[j]); err != nil {
				return fmt.Errorf("step %s: action %s (%s): %w", s.ID, s.Actions[j].ID, s.Actions[j].Title, err)
			}
		}
		if (r.changed || !maps.Equal(before, r.retained)) && (s.Gate == nil || s.NoReturn) {
			return fmt.Errorf("step %s: it changes how packets go between nodes, and has no gate or no way back", s.ID)
		}
		r.measured = r.measured || s.Gate != nil && s.Gate.Baseline
		if len(s.Undo) == 0 {
			continue // the inverses of what was seen
		}
		back := &relaying{plan: p, retained: maps.Clone(r.retained), measured: true}
		for j := range s.Undo {
			if err := back.act(&s.Undo[j]); err != nil {
				return fmt.Errorf("undo of step %s: %w", s.ID, err)
			}
		}
		if !maps.Equal(back.retained, before) || r.changed {
			return fmt.Errorf("undo of step %s: the nodes are not as before", s.ID)
		}
	}
	if len(r.retained) > 0 {
		return errors.New("at the end nodes retain routes")
	}
	return nil
}

func (r *relaying) act(a *step.Action) error {
	switch a.Op {
	case step.Node:
		if !r.measured {
			return errors.New("nothing of the network may change before measuring is proven")
		}
		return retains(a, r.plan.Cluster.Nodes, r.plan.Reflectors.Ranges, r.retained)
	case step.Apply:
		return r.touch(step.RefOf(a.Object))
	case step.Delete, step.Patch:
		return r.touch(*a.Ref)
	case step.Probe, step.Wait:
		return nil
	}
	return fmt.Errorf("the operation %q has no place here", a.Op)
}

func (r *relaying) touch(ref step.Ref) error {
	switch {
	case ours(ref):
		return nil
	case !slices.Contains([]string{"BGPPeer", "BGPConfiguration", "Node"}, ref.Kind):
		return fmt.Errorf("%s is neither Theseus' nor BGP's", ref)
	case !r.measured:
		return errors.New("nothing of the network may change before measuring is proven")
	case len(r.retained) != len(r.plan.Cluster.Nodes):
		return fmt.Errorf("%d of %d nodes retain their routes", len(r.retained), len(r.plan.Cluster.Nodes))
	}
	r.changed = true
	return nil
}

// retaining says whether an action has a node retain routes, or let go of them.
func retaining(a *step.Action) bool {
	return a.Op == step.Node && (a.Verb == step.VerbRetain || a.Verb == step.VerbLetGo)
}

// verifyRetained proves of plans that restart agents with BIRD: each agent restarts, there and back, only while every node
// retains the routes that BIRD carries; what a step did of that its undo takes back, and its gate sees; and at the end no node retains any.
func verifyRetained(p *Plan) error {
	nodes, retained, measured := p.Cluster.Nodes, map[string]bool{}, false
	carry := func(actions []step.Action, retained map[string]bool) error {
		for i := range actions {
			switch a := &actions[i]; {
			case retaining(a):
				if err := retains(a, nodes, p.Retain, retained); err != nil {
					return err
				}
			case a.Op == step.Restart && *a.Ref == p.Source.Agent && len(retained) < len(nodes):
				return fmt.Errorf("an agent restarts while %d of %d nodes retain their routes", len(retained), len(nodes))
			}
		}
		return nil
	}
	for i := range p.Steps {
		if len(p.Retain) == 0 {
			break
		}
		s, before := &p.Steps[i], maps.Clone(retained)
		if err := carry(s.Actions, retained); err != nil {
			return fmt.Errorf("step %s: %w", s.ID, err)
		}
		if !maps.Equal(before, retained) && (!measured || s.Gate == nil || s.NoReturn) {
			return fmt.Errorf("step %s: it changes which routes serve, and has no gate or no way back", s.ID)
		}
		measured = measured || s.Gate != nil && s.Gate.Baseline
		back := maps.Clone(retained)
		if err := carry(s.Undo, back); err != nil {
			return fmt.Errorf("undo of step %s: %w", s.ID, err)
		}
		if !maps.Equal(before, back) {
			return fmt.Errorf("undo of step %s: the nodes do not retain what they did", s.ID)
		}
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
	case a.Verb == step.VerbRetain:
		retained[a.NodeName] = true
	case a.Verb == step.VerbLetGo:
		delete(retained, a.NodeName)
	default:
		return fmt.Errorf("the verb %q has no place here", a.Verb)
	}
	return nil
}
