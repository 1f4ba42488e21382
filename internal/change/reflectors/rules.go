package reflectors

import (
	"errors"
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/step"
)

// relaying carries a model of a change of reflectors through its actions.
type relaying struct {
	measured bool // a baseline gate was passed
	changed  bool // something of BGP was
}

// rules prove on every prefix: nothing of BGP is touched before measuring is proven; each step that touches it is
// gated, and is taken back by the inverses of what was seen. That it is touched only while every node retains its
// routes, a rule of its own proves; that the graph is whole after each part was seen when the plan was made, and is
// demanded by its gates.
func rules(p *kind.Plan) ([]kind.Rule, error) {
	if p.Reflectors == nil {
		return nil, nil
	}
	r := &relaying{}
	return []kind.Rule{
		verify.Retained(p, p.Reflectors.Ranges, func(a *step.Action) string {
			if verify.Foreign(a) {
				return "BGP is changed"
			}
			return ""
		}),
		{
			Before: func(*step.Step) error { r.changed = false; return nil },
			Act:    func(_ *step.Step, a *step.Action) error { return r.act(a) },
			After:  r.gated, Undo: r.takenBack,
		},
	}, nil
}

func (r *relaying) gated(s *step.Step) error {
	if r.changed && (s.Gate == nil || s.NoReturn) {
		return errors.New("it changes the routes between nodes, and has no gate or no undo")
	}
	r.measured = r.measured || s.Gate != nil && s.Gate.Baseline
	return nil
}

// takenBack demands of a step without an undo nothing: the engine walks the inverses of what was seen.
func (r *relaying) takenBack(s *step.Step) error {
	if len(s.Undo) == 0 {
		return nil
	}
	back := &relaying{measured: true}
	for j := range s.Undo {
		if err := back.act(&s.Undo[j]); err != nil {
			return err
		}
	}
	if r.changed {
		return errors.New("after the undo, the nodes are not as they were before the step")
	}
	return nil
}

func (r *relaying) act(a *step.Action) error {
	switch do := a.Do.(type) {
	case step.Probe, step.Wait:
		return nil
	case step.Node:
		if verify.Retaining(a) {
			return nil
		}
		return fmt.Errorf("the verb %q is not allowed here", do.Verb)
	case step.Apply, step.Delete, step.Patch:
		return r.touch(a.Ref())
	}
	return fmt.Errorf("the operation %q is not allowed here", a.Op())
}

func (r *relaying) touch(ref step.Ref) error {
	switch {
	case verify.Ours(ref):
		return nil
	case !slices.Contains([]string{"BGPPeer", "BGPConfiguration", "Node"}, ref.Kind):
		return fmt.Errorf("%s is neither Theseus' nor BGP's", ref)
	case !r.measured:
		return errors.New("the network must not change before measuring is proven")
	}
	r.changed = true
	return nil
}
