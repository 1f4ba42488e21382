package replace

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/step"
)

// stops are the steps after which a run may be left for hours: both networks are joined and serve their pods on every
// node, no node is half way between them, and a gate has just passed.
func stops(p *kind.Plan) []kind.Stop {
	if p.Section() != nil {
		return nil
	}
	agents := []step.Ref{p.Target.Agent}
	if p.Source.HasAgent() {
		agents = append(agents, p.Source.Agent)
	}
	m, at := newMachine(p), -1
	var found []kind.Stop
	var nodes []string
	begin := func(s *step.Step) error {
		if s.Stop {
			return nil // what it checks, the rules do
		}
		return m.begin(s)
	}
	_ = verify.Hold(p, []kind.Rule{{Before: begin, Act: m.acts, After: func(s *step.Step) error {
		at++
		if err := m.reached(s); err != nil {
			return err // the rules refuse such a plan
		}
		m.log = m.log[:0]
		if s.Gate != nil && !s.Stop && m.rests() {
			if now := m.present(); !slices.Equal(now, nodes) {
				nodes = now
			}
			found = append(found, kind.Stop{After: at, Nodes: nodes, Agents: agents})
		}
		return nil
	}}})
	return found
}

// present are the nodes that the cluster has.
func (m *machine) present() []string {
	var names []string
	for i := range m.nodes {
		if !m.nodes[i].Away {
			names = append(names, m.nodes[i].Name)
		}
	}
	return names
}

// rests says whether the cluster may be left as it is.
func (m *machine) rests() bool {
	all, t := m.tally.nodes, &m.tally
	switch {
	case m.noReturn && m.plan.Surge == nil:
		// which removes nodes one wave after another, and the network after all of them
		return false
	case t.joined < all || t.targetAgents < all || t.measured < all:
		return false
	case m.plan.Source.HasAgent() && t.sourceAgents < all:
		return false
	case len(t.half)+len(t.moving)+t.pinned+t.carried+t.yielded+t.guarded > 0:
		return false
	case m.flat() && t.adopted+t.onTarget > 0 && t.selected < all: // no node knows which addresses the others have
		return false
	}
	for i := range m.nodes {
		if n := &m.nodes[i]; n.Out && !n.Away { // it is being added or removed
			return false
		}
	}
	return !slices.ContainsFunc(m.extras, func(extra step.Ref) bool { return !m.facts[exists(extra)] })
}
