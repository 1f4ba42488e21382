package replace

import (
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/step"
)

// expect makes the nodes that will come known to the model.
func (m *machine) expect(s *kind.Surge) {
	if s == nil {
		return
	}
	for w, wave := range s.Waves {
		for _, name := range wave.New {
			m.know(unborn(name, w))
		}
	}
}

// unborn is a node before it comes, and after it has gone again.
func unborn(name string, wave int) NodeModel {
	return NodeModel{Name: name, Active: Source, Added: true, Away: true, Out: true, wave: wave}
}

// hands says whether Theseus' agent is known to be ready on a node.
func (m *machine) hands(i int) bool {
	if n := &m.nodes[i]; n.Added {
		return n.Hands
	}
	return m.facts[rolledOut(verify.AgentRef())] && !m.nodes[i].Away
}

// goes says whether a node is one that is replaced.
func (m *machine) goes(i int) bool {
	return m.plan.Surge != nil && !m.nodes[i].Added && m.nodes[i].wave < len(m.plan.Surge.Waves)
}

// gone reports whether the nodes that go have gone, of all waves before one.
func (m *machine) gone(before int) bool {
	for i := range m.nodes {
		if m.goes(i) && m.nodes[i].wave < before && !m.nodes[i].Away {
			return false
		}
	}
	return true
}

// opened reports whether the new nodes of a wave are in use.
func (m *machine) opened(wave int) bool {
	return !slices.ContainsFunc(m.nodes, func(n NodeModel) bool { return n.Added && n.wave == wave && n.Out })
}

// hook follows the coming and going of nodes.
func (m *machine) hook(do step.Hook) error {
	i, err := m.node(do.NodeName)
	if err != nil {
		return err
	}
	n := m.nodes[i]
	switch {
	case m.plan.Surge == nil:
		return fmt.Errorf("the strategy %s neither adds nor removes nodes", m.plan.Strategy)
	case do.Verb == step.VerbAdd && n.Added:
		return m.come(i)
	case do.Verb == step.VerbRemove && n.Added:
		if !m.undoing || !n.Repels || n.PodsNew || n.ProbeNew || n.MeasuredNew {
			return fmt.Errorf("%s is new, and may be removed only if no pod has used it", n.Name)
		}
		m.edit(i, func(now *NodeModel) { *now = unborn(n.Name, n.wave) })
		return nil
	case do.Verb == step.VerbRemove && m.goes(i):
		return m.leave(i)
	}
	return fmt.Errorf("the plan does not %s node %s", do.Verb, n.Name)
}

// come: there may be pods of DaemonSets that bear every taint on it, on the source, until it is switched.
func (m *machine) come(i int) error {
	all := m.tally.nodes
	switch {
	case !m.nodes[i].Away || m.undoing:
		return fmt.Errorf("%s is there", m.nodes[i].Name)
	case m.tally.joined < all || m.tally.targetAgents < all:
		return fmt.Errorf("a node may be added only when both networks run on all others")
	case !m.gone(m.nodes[i].wave):
		return fmt.Errorf("%s is added before the nodes of an earlier wave are removed", m.nodes[i].Name)
	}
	if j := slices.IndexFunc(m.nodes, func(n NodeModel) bool { return !n.Added && !n.Away && !n.Pending }); j >= 0 {
		return fmt.Errorf("pods could move to %s, and would then move twice", m.nodes[j].Name)
	}
	m.edit(i, func(n *NodeModel) {
		n.Away, n.Repels, n.Slot, n.SourceResidue, n.PodsOld = false, true, true, true, true
	})
	return nil
}

// leave: what is on a node goes with it.
func (m *machine) leave(i int) error {
	n := &m.nodes[i]
	switch {
	case !m.noReturn:
		return fmt.Errorf("%s may be removed only past the point of no return, because a rollback could not restore it",
			n.Name)
	case n.Away || !n.Repels || !n.Emptied:
		return fmt.Errorf("the plan does not check that no pod is left on %s", n.Name)
	case n.MeasuredOld || n.MeasuredNew || n.ProbeOld || n.ProbeNew:
		return fmt.Errorf("%s is measured, and its end would count as loss", n.Name)
	}
	m.note("leave", n.Name)
	m.edit(i, func(n *NodeModel) { n.Away, n.Out = true, true })
	return nil
}

// repel follows the hard taint. A new node is opened when it is proven.
func (m *machine) repel(i int, on bool) error {
	n := &m.nodes[i]
	switch {
	case n.Away || !n.Added && !m.goes(i):
		return fmt.Errorf("%s is not a node that may be tainted or untainted", n.Name)
	case on && !n.Added && !m.opened(n.wave):
		return fmt.Errorf("pods of %s would have no new node to move to", n.Name)
	case !on && n.Added && (!n.Proven || n.PodsOld || n.Active != Target):
		return fmt.Errorf("no gate has measured the traffic of %s", n.Name)
	case !on && n.Added:
		m.note("open", n.Name)
		m.edit(i, func(n *NodeModel) { n.Repels, n.Out, n.PodsNew = false, false, true })
	case !on:
		m.edit(i, func(n *NodeModel) { n.Repels, n.Moved, n.Emptied = false, false, false })
	default:
		m.edit(i, func(n *NodeModel) { n.Repels = true })
	}
	return nil
}

// drain follows the eviction of all but the pods of DaemonSets.
func (m *machine) drain(i int, set step.PodSet) error {
	n := &m.nodes[i]
	switch {
	case n.Away || !n.Repels:
		return fmt.Errorf("pods evicted from %s now would start there again", n.Name)
	case n.Added && slices.Equal(set.CIDRs, m.plan.Target.PodCIDRs) && m.undoing:
		m.edit(i, func(n *NodeModel) { n.PodsNew, n.Out = false, true })
	case m.goes(i) && slices.Equal(set.CIDRs, m.plan.Source.PodCIDRs) && (set.LeaveEnding || n.Moved):
		m.edit(i, func(n *NodeModel) { n.Moved, n.Emptied = true, n.Emptied || !set.LeaveEnding })
	default:
		return fmt.Errorf("the pods of %s in %v must not be moved now", n.Name, set.CIDRs)
	}
	return nil
}

// among reports whether the cluster has these nodes and no other.
func (m *machine) among(names []string) bool {
	there := 0
	for i := range m.nodes {
		if !m.nodes[i].Away {
			there++
		}
	}
	return len(names) == there && !slices.ContainsFunc(names, func(name string) bool {
		i, known := m.index[name]
		return !known || m.nodes[i].Away
	})
}

// drained reports whether no pod of the source is known to be on a node, but those that a condition leaves out.
func (n *NodeModel) drained(is step.NoPods) bool {
	return n.Repels && (n.Emptied || is.LeaveEnding && n.Moved)
}

// surging are the nodes of a wave that are there.
func (m *machine) surging(wave string) []string {
	var names []string
	for i := range m.nodes {
		if n := &m.nodes[i]; !n.Away && m.plan.Waves[n.wave].Name == wave {
			names = append(names, n.Name)
		}
	}
	return names
}

// surged demands that, at the end, the old nodes are gone and the new ones are in use.
func (m *machine) surged() error {
	for i := range m.nodes {
		switch n := &m.nodes[i]; {
		case n.Added && (n.Out || n.Repels):
			return fmt.Errorf("at the end %s is not in use", n.Name)
		case n.Slot:
			return fmt.Errorf("at the end %s still has the label of its slot", n.Name)
		case m.goes(i) && !n.Away:
			return fmt.Errorf("at the end %s is still there", n.Name)
		}
	}
	return nil
}

// surgeOrder demands the order that a reader was told. all are the nodes that go, that stay and that come.
func (m *machine) surgeOrder(all []string) error {
	var gone, stay, come []string
	for i := range m.nodes {
		switch n := &m.nodes[i]; {
		case n.Added:
			come = append(come, n.Name)
		case m.goes(i):
			gone = append(gone, n.Name)
		default:
			stay = append(stay, n.Name)
		}
	}
	standing := slices.Concat(come, stay)
	for what, wanted := range map[string][]string{"label": all, "open": come, "leave": gone,
		"switch": standing, "clean": standing} {
		if !slices.Equal(m.order[what], wanted) {
			return fmt.Errorf("nodes do not %s in the order of the waves", what)
		}
	}
	return nil
}
