package rollout

import (
	"errors"
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// Rules are the rules of rollouts.
var Rules = rules

// Naive are the rules in a form that copies all nodes at each step, and looks at all of them.
func Naive(p *kind.Plan) ([]kind.Rule, error) {
	r, err := follow(p)
	if err != nil {
		return nil, err
	}
	n := &naive{rolling: r}
	return []kind.Rule{{
		Before: func(*step.Step) error { n.then = n.copy(); n.before = n.now(); return nil },
		Act:    func(_ *step.Step, a *step.Action) error { return n.act(a) },
		After:  n.after, Undo: n.takenBack, End: n.end,
	}}, nil
}

type naive struct {
	*rolling
	then *rolling
}

func (n *naive) copy() *rolling {
	same := *n.rolling
	same.nodes = slices.Clone(n.nodes)
	return &same
}

func (n *naive) after(s *step.Step) error {
	if s.Node != "" {
		n.switched = append(n.switched, s.Node)
	}
	changed := n.cluster != n.then.cluster
	for i, name := range n.order {
		node := &n.nodes[i]
		changed = changed || !Same(node.own, n.then.nodes[i].own)
		switch {
		case node.guarded:
			return fmt.Errorf("a guard stays on %s", name)
		case node.stale:
			return fmt.Errorf("the agent of %s runs with the former value", name)
		case !Same(node.own, node.turn.Was) && n.has(node) &&
			(!node.proven && !n.anew || !node.said && !node.turn.Moves()):
			return fmt.Errorf("%s is not proven", name)
		}
	}
	if changed && (s.Gate == nil || !slices.Equal(s.Gate.Changed, n.switched) &&
		(!s.Gate.Compare || len(s.Gate.Changed) > 0)) {
		return errors.New("it changes nodes, and its gate does not measure them")
	}
	return nil
}

func (n *naive) takenBack(s *step.Step) error {
	if s.NoReturn || len(s.Undo) == 0 && n.then.held == n.held {
		return nil
	}
	back := n.copy()
	back.before = back.now()
	if err := back.all(s.Undo); err != nil {
		return err
	}
	for i, name := range n.order {
		now, was := &back.nodes[i], &n.then.nodes[i]
		if !Same(now.own, was.own) || now.guarded || now.stale || now.plane != was.plane ||
			!now.said && !now.turn.Moves() {
			return fmt.Errorf("%s differs from before", name)
		}
	}
	if back.cluster != n.then.cluster || back.held != n.then.held || back.measured && !n.then.measured {
		return errors.New("the cluster differs from before")
	}
	return nil
}
