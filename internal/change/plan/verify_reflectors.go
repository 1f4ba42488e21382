package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// relaying carries a model of a change of reflectors through its actions.
type relaying struct {
	measured bool // a baseline gate was passed
	changed  bool // something of BGP was
}

// verifyReflectors proves on every prefix: nothing of BGP is touched before measuring is proven; each step that touches it is
// gated, and is taken back by the inverses of what was seen. That it is touched only while every node retains its routes, verifyRetained
// proves; that the graph is whole after each part was seen when the plan was made, and is demanded by its gates.
func verifyReflectors(p *Plan) error {
	if err := unique(p); err != nil {
		return err
	}
	r := &relaying{}
	for i := range p.Steps {
		s := &p.Steps[i]
		r.changed = false
		for j := range s.Actions {
			if err := r.act(&s.Actions[j]); err != nil {
				return fmt.Errorf("step %s: action %s (%s): %w", s.ID, s.Actions[j].ID, s.Actions[j].Title, err)
			}
		}
		if r.changed && (s.Gate == nil || s.NoReturn) {
			return fmt.Errorf("step %s: it changes how packets go between nodes, and has no gate or no way back", s.ID)
		}
		r.measured = r.measured || s.Gate != nil && s.Gate.Baseline
		if len(s.Undo) == 0 {
			continue // the inverses of what was seen
		}
		back := &relaying{measured: true}
		for j := range s.Undo {
			if err := back.act(&s.Undo[j]); err != nil {
				return fmt.Errorf("undo of step %s: %w", s.ID, err)
			}
		}
		if r.changed {
			return fmt.Errorf("undo of step %s: the nodes are not as before", s.ID)
		}
	}
	return nil
}

func (r *relaying) act(a *step.Action) error {
	switch {
	case retaining(a), a.Op == step.Probe, a.Op == step.Wait:
		return nil
	case a.Op == step.Node:
		return fmt.Errorf("the verb %q has no place here", a.Verb)
	case a.Op == step.Apply:
		return r.touch(step.RefOf(a.Object))
	case a.Op == step.Delete, a.Op == step.Patch:
		return r.touch(*a.Ref)
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
	}
	r.changed = true
	return nil
}
