package pool

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/step"
)

// pooling carries a model of a change of pools through its actions.
type pooling struct {
	plan *kind.Plan
	// made and gone are the two IPPools being there or not any more; open is that pods get addresses of the new one,
	// closed that they get none of the old one; both that probe pods of both ranges are measured, alone of the new one
	// only.
	made, gone, open, closed, both, alone bool
	measured                              bool            // a baseline gate was passed
	proven                                bool            // a gate was passed with both ranges measured
	empty                                 map[string]bool // nodes
	touched, undoing, past                bool
	before                                *pooling // the step
}

// rules prove on every prefix: nothing changes before measuring is proven; the new pool gives addresses only once a
// gate has seen both ranges on every node; pods are evicted only when they come back in the new range; the old pool
// goes past the point of no return alone, with no pod in it, or stays for tunnels; each such step is gated; and what a
// step did to the pools its undo takes back.
func rules(p *kind.Plan) ([]kind.Rule, error) {
	if p.Pools == nil {
		return nil, nil
	}
	m := &pooling{plan: p, empty: map[string]bool{}}
	return []kind.Rule{{Before: m.begin, Act: func(_ *step.Step, a *step.Action) error { return m.act(a) },
		After: m.gated, Undo: m.takenBack, End: m.end}}, nil
}

// begin remembers how the pools are before a step.
func (m *pooling) begin(s *step.Step) error {
	m.past = m.past || s.NoReturn
	m.touched = false
	before := *m
	m.before = &before
	return nil
}

func (m *pooling) gated(s *step.Step) error {
	if m.touched && s.Gate == nil {
		return errors.New("it changes addresses, and has no gate")
	}
	m.measured = m.measured || s.Gate != nil && s.Gate.Baseline
	m.proven = m.proven || s.Gate != nil && m.both && m.made
	return nil
}

func (m *pooling) takenBack(s *step.Step) error {
	if m.past || !m.touched {
		return nil
	}
	back := *m
	back.undoing, back.empty = true, maps.Clone(m.empty)
	for j := range s.Undo {
		if err := back.act(&s.Undo[j]); err != nil {
			return err
		}
	}
	if back.made != m.before.made || back.open != m.before.open || back.closed != m.before.closed {
		return errors.New("after the undo, the pools are not as they were before the step")
	}
	return nil
}

func (m *pooling) end() error {
	switch {
	case !m.open || !m.closed || len(m.empty) != len(m.plan.Cluster.Nodes):
		return errors.New("at the end not all pods are in the new pool")
	case m.gone == m.plan.Pools.Stays:
		return errors.New("at the end the old pool was deleted although it has to stay, or was kept although it " +
			"has to go")
	case m.both || m.alone:
		return errors.New("at the end probe pods are still measured")
	}
	return nil
}

func (m *pooling) act(a *step.Action) error {
	if verify.Exempting(a) {
		return nil
	}
	switch do := a.Do.(type) {
	case step.Apply:
		return m.apply(step.RefOf(do.Object))
	case step.Delete:
		return m.remove(do.Ref)
	case step.Patch:
		return m.patch(a)
	case step.Evict:
		return m.evict(do.Pods)
	case step.Probe:
		old, new := slices.Contains(do.Paths.Old, step.EveryNode), slices.Contains(do.Paths.New, step.EveryNode)
		m.both, m.alone = old && new, new && !old
		return nil
	case step.Wait:
		return nil
	}
	return fmt.Errorf("the operation %q is not allowed here", a.Op())
}

func (m *pooling) apply(ref step.Ref) error {
	switch {
	case verify.Ours(ref):
		return nil
	case ref.Kind != "IPPool" || ref.Name != m.plan.Pools.To || !m.measured:
		return errors.New("only the new pool may be created, and only once measuring is proven")
	}
	m.made, m.touched = true, true
	return nil
}

func (m *pooling) remove(ref step.Ref) error {
	if verify.Ours(ref) {
		return nil
	}
	m.touched = true
	switch {
	case ref.Kind == "IPPool" && ref.Name == m.plan.Pools.To:
		if m.open || m.both {
			return errors.New("pods may have addresses of the new pool")
		}
		m.made = false
	case ref.Kind == "IPPool" && ref.Name == m.plan.Pools.From:
		if !m.past || m.plan.Pools.Stays || !m.alone || len(m.empty) != len(m.plan.Cluster.Nodes) {
			return errors.New(
				"the old pool may be deleted only past the point of no return, once no pod has an address from it")
		}
		m.gone = true
	default:
		return fmt.Errorf("%s is neither of the two pools", ref)
	}
	return nil
}

func (m *pooling) patch(a *step.Action) error {
	if a.Ref().Kind != "IPPool" {
		return fmt.Errorf("%s is neither of the two pools", a.Ref())
	}
	m.touched = true
	switch {
	case a.Ref().Name == m.plan.Pools.To && m.made:
		if !m.proven && !m.undoing {
			return errors.New("no gate has measured both ranges yet")
		}
		m.open = !m.undoing
	case a.Ref().Name == m.plan.Pools.From && (m.open || m.undoing):
		m.closed = !m.undoing
	default:
		return errors.New("pods would get addresses of neither pool")
	}
	return nil
}

func (m *pooling) evict(set step.PodSet) error {
	m.touched = true
	switch {
	case slices.Equal(set.CIDRs, m.plan.Source.PodCIDRs) && m.open && m.closed && !m.undoing:
		m.empty[set.Node] = true
	case slices.Equal(set.CIDRs, m.plan.Target.PodCIDRs) && !m.open && !m.closed && m.undoing:
		delete(m.empty, set.Node)
	default:
		return fmt.Errorf("pods evicted from %s now could get addresses of the old pool again", set.Node)
	}
	return nil
}
