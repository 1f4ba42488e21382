package replace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/adopt"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

// adopting says that the plan's pods are taken over as they run.
func (m *machine) adopting() bool { return m.plan.Strategy == adopt.Name }

// flat says that no node has addresses of its own: those that are taken are known when every node was looked at, so all
// nodes' pods are adopted before any node is switched.
func (m *machine) flat() bool { return m.plan.Source.Capabilities.Flat }

// adopt follows the verb that moves running pods. Which way it goes, its ends say.
func (m *machine) adopt(i int, do step.Node) error {
	args, err := m.adoptArgs.Read(do.Args)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	source, target := m.plan.Source.Capabilities.Attachment, m.plan.Target.Capabilities.Attachment
	if !m.adopting() || source == nil || target == nil {
		return errors.New("the two networks do not describe how they attach pods")
	}
	name := m.nodes[i].Name
	canary := []string{v1alpha1.Namespace + "/" + manifest.ProbePodName(name, "old")}
	alone := slices.Equal(args.Pods, canary)
	if !alone && len(args.Pods) > 0 {
		return fmt.Errorf("%v is neither the probe pod of %s nor all of its pods", args.Pods, name)
	}
	switch to := args.To; {
	case sameAttachment(args.From, *source) && sameAttachment(to, *target):
		if do.Verb == step.VerbAdoptable {
			m.note("rehearse", name)
			return nil
		}
		return m.takeOver(i, alone, len(args.Skip) > 0)
	case sameAttachment(args.From, *target) && sameAttachment(to, *source) && args.Release:
		return m.giveBack(i, alone, slices.Equal(args.Skip, canary))
	}
	return errors.New("it moves pods between networks that are not the plan's")
}

func sameAttachment(a, b step.Attachment) bool {
	return slices.Equal(a.Conf, b.Conf) && a.Bridge == b.Bridge && a.Strict == b.Strict &&
		slices.Equal(a.Ready, b.Ready) &&
		a.Reservations == b.Reservations && a.Claim == b.Claim && a.Asks == b.Asks && slices.Equal(a.Restore, b.Restore)
}

// takeOver moves the probe pod, or all pods but a few.
func (m *machine) takeOver(i int, alone, few bool) error {
	n, all := m.nodes[i], m.tally.nodes
	switch {
	case m.tally.joined < all:
		return fmt.Errorf("the networks are joined on %d of %d nodes", m.tally.joined, all)
	case m.tally.targetAgents < all:
		return fmt.Errorf("the plan checks on only %d of %d nodes that the target's agent runs",
			m.tally.targetAgents, all)
	case m.tally.measured < all:
		return fmt.Errorf("%d of %d nodes are measured", m.tally.measured, all)
	case !m.rehearsed():
		return errors.New("no agent was asked which pods can be adopted")
	case alone && m.tally.moving.elsewhere(n.wave):
		return errors.New("a node of another wave is in the middle of being adopted")
	case alone && !n.ReadyOld:
		return fmt.Errorf("the plan does not check that the probe pod of %s is ready", n.Name)
	case !alone && !n.Proven:
		return fmt.Errorf("no gate has measured an adopted pod of %s", n.Name)
	}
	for _, extra := range m.extras {
		if !m.facts[exists(extra)] {
			return fmt.Errorf("%s does not exist, so pods could get the addresses of nodes", extra)
		}
	}
	if alone {
		m.note("adopt", n.Name)
		m.edit(i, func(n *NodeModel) { n.Canary = true })
		return nil
	}
	m.edit(i, func(n *NodeModel) {
		n.Adopted, n.PodsNew = true, true
		if n.Active == Target { // nothing new can come up on the source
			n.PodsOld = few && !n.Emptied
			n.Verified = n.Selected && !n.PodsOld && m.tally.selected == all
			n.Swept = true
			n.Emptied = n.Emptied || !n.PodsOld
		}
	})
	return nil
}

// giveBack moves pods back to the source.
func (m *machine) giveBack(i int, alone, butCanary bool) error {
	n := m.nodes[i]
	switch {
	case !m.undoing || m.noReturn:
		return errors.New("pods move back only when a step is undone")
	case n.Selected:
		return fmt.Errorf("new pods of %s would still start on the target", n.Name)
	case n.Held || n.Carried:
		return fmt.Errorf("the source does not route the outgoing traffic of %s", n.Name)
	case n.Canary && !alone && !butCanary:
		return fmt.Errorf("the probe pod of %s moved first, so it must move back last", n.Name)
	}
	m.edit(i, func(n *NodeModel) {
		if alone {
			n.Canary, n.Proven = false, false
			return
		}
		n.Adopted, n.PodsNew, n.PodsOld, n.Emptied, n.Swept, n.Verified = false, false, true, false, false, false
	})
	return nil
}

func (m *machine) rehearsed() bool { return len(m.order["rehearse"]) == m.tally.nodes }

// selected follows the label with which the target gives addresses of the range on a node: it must know all that
// are taken there.
func (m *machine) selected(i int, on bool) error {
	if on && (m.nodes[i].Active != Target || !m.nodes[i].Swept) {
		return fmt.Errorf("on %s there may be addresses that the target does not know", m.nodes[i].Name)
	}
	if on && m.flat() && m.tally.swept < m.tally.nodes {
		return fmt.Errorf("on %d nodes there may be addresses of the same range that the target does not know",
			m.tally.nodes-m.tally.swept)
	}
	if !on && m.noReturn && m.rangesWith("opened ") < len(m.plan.Source.PodCIDRs) {
		return fmt.Errorf("new pods of %s would get no address", m.nodes[i].Name)
	}
	m.edit(i, func(n *NodeModel) { n.Selected = on })
	return nil
}

// hold, carried and unhold follow the routes between nodes. The target must not carry the range while there may
// be a pod on the source: its agent would cut it off.
func (m *machine) routes(i int, do step.Node) error {
	args, err := m.holdArgs.Read(do.Args)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	if !m.adopting() || !slices.Equal(args.Within, m.plan.Source.PodCIDRs) ||
		!slices.Equal(args.Source, m.plan.Source.Capabilities.RoutesBy()) ||
		!slices.Equal(args.Target, m.plan.Target.Capabilities.HostLinks) {
		return errors.New("its arguments are not the adopted range and the interfaces of the two networks")
	}
	if others := m.tally.nodes - 1; m.flat() && args.Others != others || !m.flat() && args.Others > 0 {
		return fmt.Errorf("it lists %d nodes as neighbours, but there are %d others", args.Others, others)
	}
	switch do.Verb {
	case step.VerbHold:
		if err := m.nothingLeft(); err != nil {
			return err
		}
		if m.undoing {
			m.edit(i, func(n *NodeModel) { n.Pinned, n.Yielded = true, false })
			return nil
		}
		m.edit(i, func(n *NodeModel) { n.Held, n.Pinned = true, true })
	case step.VerbUnhold:
		if m.rangesWith("carried ") > 0 {
			return errors.New("the target still routes a range")
		}
		m.edit(i, func(n *NodeModel) { n.Held, n.Carried, n.Pinned = false, false, false })
	case step.VerbCarried:
		if m.rangesWith("carried ") < len(m.plan.Source.PodCIDRs) {
			return errors.New("it waits for routes that no step has requested")
		}
		m.edit(i, func(n *NodeModel) { n.Carried = true })
	case step.VerbYield:
		if m.tally.carried < m.tally.nodes {
			return fmt.Errorf("the plan checks on only %d of %d nodes that the target routes the range",
				m.tally.carried, m.tally.nodes)
		}
		m.note("yield", m.nodes[i].Name)
		m.edit(i, func(n *NodeModel) { n.Pinned, n.Yielded = false, true })
	}
	return nil
}

// nothingLeft demands that on every node it was seen that no pod is on the source.
func (m *machine) nothingLeft() error {
	if all := m.tally.nodes; m.tally.podsOld > 0 || m.tally.verified < all || m.tally.onTarget < all {
		return fmt.Errorf("the plan does not check on every node that no pod is on the source (%d of %d)",
			m.tally.verified, all)
	}
	return nil
}

// carry follows patches of the target's own objects, one for each range: before the point of no return, they let it
// carry the range or take that back; after it, nothing of the source may be left.
func (m *machine) carry(ref step.Ref) error {
	if !slices.Contains(m.ranges, ref) {
		m.ranges = append(m.ranges, ref)
	}
	switch {
	case m.noReturn:
		if m.tally.sourceResidue > 0 {
			return errors.New("the target's own objects may be changed only when nothing of the source is left")
		}
		m.set("opened "+ref.String(), true)
	case m.undoing:
		if m.tally.pinned < m.tally.nodes {
			return fmt.Errorf("%d nodes depend on the routes of the target", m.tally.nodes-m.tally.pinned)
		}
		m.set("carried "+ref.String(), false)
		m.everywhere(func(n *NodeModel) { n.Carried = false })
	default:
		if err := m.nothingLeft(); err != nil {
			return err
		}
		if m.tally.pinned < m.tally.nodes {
			return fmt.Errorf("the source's routes are held on %d of %d nodes", m.tally.pinned, m.tally.nodes)
		}
		m.set("carried "+ref.String(), true)
	}
	return nil
}

// rangesWith counts the ranges of which something holds.
func (m *machine) rangesWith(what string) int {
	count := 0
	for _, ref := range m.ranges {
		if m.facts[what+ref.String()] {
			count++
		}
	}
	return count
}
