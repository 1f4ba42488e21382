package replace

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

func (m *machine) onNode(do step.Node) error {
	i, err := m.node(do.NodeName)
	if err != nil {
		return err
	}
	if !m.hands(i) {
		return fmt.Errorf("the plan does not check that the agent of %s is ready", do.NodeName)
	}
	effect, known := effects[do.Verb]
	if !known {
		return fmt.Errorf("the verb %q is not known", do.Verb)
	}
	return effect(m, i, do)
}

// effects are what the verbs that a change of networks uses do to the model.
var effects = map[string]func(m *machine, i int, do step.Node) error{
	step.VerbFacts:      func(*machine, int, step.Node) error { return nil },
	step.VerbInventory:  edits(func(n *NodeModel) { n.Counted, n.Recounted = true, !n.SourceResidue }),
	step.VerbClean:      (*machine).clean,
	step.VerbActivate:   (*machine).activate,
	step.VerbDeactivate: (*machine).deactivate,
	step.VerbJoin:       (*machine).join,
	step.VerbPart:       (*machine).join,
	step.VerbGuard:      edits(func(n *NodeModel) { n.Guarded = true }),
	step.VerbRelease:    edits(func(n *NodeModel) { n.Guarded = false }),
	step.VerbHold:       (*machine).routes,
	step.VerbCarried:    (*machine).routes,
	step.VerbYield:      (*machine).routes,
	step.VerbUnhold:     (*machine).routes,
	step.VerbAdoptable:  (*machine).adopt,
	step.VerbAdopt:      (*machine).adopt,
	step.VerbSettle:     (*machine).settle,
}

// edits is the effect of a verb that may be done at any time.
func edits(change func(*NodeModel)) func(*machine, int, step.Node) error {
	return func(m *machine, i int, _ step.Node) error {
		m.edit(i, change)
		return nil
	}
}

func (m *machine) join(i int, do step.Node) error {
	args, err := m.joinArgs.Read(do.Args)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	if !slices.Equal(args.Old, m.plan.Source.PodCIDRs) || !slices.Equal(args.New, m.plan.Target.PodCIDRs) {
		return fmt.Errorf("it joins %v and %v, which are not the ranges of the two networks", args.Old, args.New)
	}
	if do.Verb == step.VerbJoin && !equality.Semantic.DeepEqual(args.Marks, m.plan.Target.Capabilities.Marks) {
		return fmt.Errorf("it joins without the changes of packet marks that the agents of both networks need")
	}
	if all := m.plan.Source.Capabilities.MasqueradesAll; do.Verb == step.VerbJoin && args.Within != all {
		if all {
			return fmt.Errorf("the plan does not exempt traffic between the target's pods from the source's " +
				"masquerading")
		}
		return fmt.Errorf("the plan exempts traffic between the target's pods, but the source does not masquerade it")
	}
	if do.Verb == step.VerbJoin && !m.facts["baseline"] {
		return fmt.Errorf("no node may be changed before measuring is proven")
	}
	m.edit(i, func(n *NodeModel) { n.Joined = do.Verb == step.VerbJoin })
	return nil
}

// activate is where the first pod can come up on the target: all that joins the networks must be there.
func (m *machine) activate(i int, _ step.Node) error {
	all := m.tally.nodes
	switch {
	case m.nodes[i].Active == Target:
		return fmt.Errorf("%s is switched already", m.nodes[i].Name)
	case m.tally.joined < all:
		return fmt.Errorf("the networks are joined on %d of %d nodes", m.tally.joined, all)
	case m.tally.targetAgents < all:
		return fmt.Errorf("the plan checks on only %d of %d nodes that the target's agent runs",
			m.tally.targetAgents, all)
	case m.tally.half.elsewhere(m.nodes[i].wave):
		return fmt.Errorf("a node of another wave is switched, and may still have pods on the source")
	case m.tally.measured < all:
		return fmt.Errorf("%d of %d nodes are measured", m.tally.measured, all)
	case m.plan.Source.Cession != nil && m.tally.ceded < all:
		return fmt.Errorf("the plan checks on only %d of %d nodes that the source's agent left policy to the target's",
			m.tally.ceded, all)
	case m.plan.Source.Cession != nil && m.lacking() != "":
		return fmt.Errorf("%s does not exist yet", m.lacking())
	case m.adopting() && !m.nodes[i].Adopted:
		return fmt.Errorf("%s would serve new pods on the target before its own were adopted", m.nodes[i].Name)
	}
	m.note("switch", m.nodes[i].Name)
	if n := &m.nodes[i]; n.Added && (!n.Joined || !n.SourceAgent && m.plan.Source.HasAgent() || !n.TargetAgent) {
		return fmt.Errorf("%s does not run both networks", n.Name)
	} else if !n.Added && !m.gone(n.wave) {
		return fmt.Errorf("%s is switched before all old nodes are removed", n.Name)
	}
	m.edit(i, func(n *NodeModel) { n.Active, n.PodsNew = Target, !n.Repels })
	return nil
}

// lacking is an object of the target that does not exist; empty if there is none.
func (m *machine) lacking() string {
	for _, part := range m.plan.Target.Parts {
		if !m.facts[exists(part)] {
			return part.String()
		}
	}
	return ""
}

func (m *machine) deactivate(i int, _ step.Node) error {
	if m.adopting() && (m.nodes[i].Adopted || m.flat() && m.tally.adopted > 0) {
		return fmt.Errorf("the source would serve new pods on %s and not know every address that is taken",
			m.nodes[i].Name)
	}
	m.edit(i, func(n *NodeModel) { n.Active, n.PodsOld, n.Moved, n.Emptied = Source, true, false, false })
	return nil
}

func (m *machine) settle(i int, _ step.Node) error {
	if !m.noReturn || m.tally.yielded < m.tally.nodes {
		return fmt.Errorf("the source may release its addresses only past the point of no return")
	}
	if how := m.plan.Source.Capabilities.Attachment; how != nil && how.Asks && !m.facts[exists(m.plan.Source.Agent)] {
		return fmt.Errorf("the source's agent is gone, and only that agent can release its addresses")
	}
	m.edit(i, func(n *NodeModel) { n.Settled = true })
	return nil
}

// clean tells whose residue it is by the names of the configuration files.
func (m *machine) clean(i int, do step.Node) error {
	residue, err := m.residues.Read(do.Args)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	name := m.nodes[i].Name
	switch {
	case slices.Contains(residue.ConfFiles, m.plan.Source.Capabilities.ConfName):
		if m.nodes[i].Active == Source || m.tally.sourceAgents > 0 || m.tally.podsOld > 0 || !m.nodes[i].Counted {
			return fmt.Errorf(
				"the source's residue on %s may be removed only when the source runs on no node and its residue "+
					"was listed", name)
		}
		if m.adopting() && (!m.nodes[i].Settled || len(residue.Routes) > 0) {
			return fmt.Errorf("cleaning %s would take addresses or routes from adopted pods", name)
		}
		m.note("clean", name)
		m.edit(i, func(n *NodeModel) { n.SourceResidue = false })
	case len(residue.Links) > 0:
		if m.nodes[i].Active == Target || m.nodes[i].TargetAgent {
			return fmt.Errorf("the target's residue on %s may be removed only when the target does not run there", name)
		}
		if m.adopting() && len(residue.Routes) > 0 {
			return fmt.Errorf("cleaning %s would take the routes of the source", name)
		}
		m.edit(i, func(n *NodeModel) { n.TargetResidue, n.Staged = false, false })
	default:
		m.edit(i, func(n *NodeModel) { n.Staged = m.facts["gated"] })
	}
	return nil
}

// reach is what waiting for a condition brings; waiting for what cannot come is an error.
func (m *machine) reach(c step.Condition) error {
	never := &verify.Never{Condition: c}
	switch is := c.Is.(type) {
	case step.Established:
		// one that the target creates itself comes with its first agents
		if !m.facts[exists(is.Ref)] && (!m.facts[absent(is.Ref)] || m.tally.targetAgents == 0) {
			return never
		}
		m.set(serves(is.Ref), true)
	case step.Rolled:
		return m.reachRolled(is.Ref, never)
	case step.PodReady:
		i, err := m.node(is.Node)
		if err != nil {
			return err
		}
		return m.reachPod(i, is, never)
	case step.PodGone:
		if is.Selector == m.plan.Target.Selector && is.Node != "" {
			if i, err := m.node(is.Node); err != nil || m.nodes[i].Labelled || m.nodes[i].TargetAgent {
				return never
			}
		}
		if is.Selector == m.plan.Source.Selector && m.tally.sourceAgents > 0 {
			return never
		}
	case step.NoPods:
		return m.reachEmpty(is, never)
	case step.Has, step.Reports:
		return m.reachMade(c, never)
	case step.Gone:
		if !m.holds(c) {
			return never
		}
		if is.Ref == m.plan.Target.Agent && !m.facts["baseline"] {
			return errors.New("no node may be prepared for the target before measuring is proven")
		}
	default:
		if !m.holds(c) {
			return never
		}
	}
	return nil
}

func (m *machine) reachRolled(ref step.Ref, never *verify.Never) error {
	if !m.facts[exists(ref)] {
		return never
	}
	if ref == m.plan.Target.Agent {
		ready := m.tally.targetAgents // on some nodes only, it is no place to move to
		if !m.facts["gated"] {
			ready = m.tally.ownForm
		}
		if !m.facts["gated"] && m.facts[seenMade] { // the DaemonSet is of its own form, and replaces its pods by itself
			ready = m.tally.nodes
		}
		if ready < m.tally.nodes {
			return never
		}
	}
	m.set(rolledOut(ref), true)
	return nil
}

// reachMade: an operator makes of its object what that says, and nothing else.
func (m *machine) reachMade(c step.Condition, never *verify.Never) error {
	has, is := c.Is.(step.Has)
	switch maker := m.plan.Target.Maker; {
	case maker == nil || !m.facts[exists(c.Ref())]:
		return never
	case is && has.Ref == m.plan.Target.Agent:
		var made struct {
			Spec struct {
				Template struct {
					Spec struct{ NodeSelector map[string]*string }
				}
			}
		}
		if err := json.Unmarshal(has.Fields, &made); err != nil {
			return fmt.Errorf("fields: %w", err)
		}
		label, asked := made.Spec.Template.Spec.NodeSelector[v1alpha1.LabelTarget]
		if !asked || (label != nil) != m.facts["gated"] {
			return never
		}
		m.set(seenMade, true)
	}
	return nil
}

func (m *machine) reachPod(i int, is step.PodReady, never *verify.Never) error {
	switch cession := m.plan.Source.Cession; {
	case cession != nil && is.Selector == cession.Selector:
		if !m.nodes[i].Labelled || !m.facts[exists(step.RefOf(cession.Keep))] {
			return never
		}
		m.edit(i, func(n *NodeModel) { n.Ceded = true })
	case cession != nil && is.Selector == m.plan.Source.Selector:
		if !m.facts[exists(m.plan.Source.Agent)] {
			return never
		}
	case m.isTarget(is):
		if !m.nodes[i].Labelled || !m.facts[exists(m.plan.Target.Agent)] {
			return never
		}
		m.edit(i, func(n *NodeModel) { n.TargetAgent = true })
	case m.nodes[i].Added && !m.nodes[i].Away && is.Selector == m.plan.Source.Selector:
		m.edit(i, func(n *NodeModel) { n.SourceAgent = m.facts[exists(m.plan.Source.Agent)] })
	case m.nodes[i].Added && !m.nodes[i].Away && is.Selector == manifest.AgentSelector:
		m.edit(i, func(n *NodeModel) { n.Hands = m.facts[exists(verify.AgentRef())] })
	case m.isProbe(is, "old") && m.nodes[i].ProbeOld:
		m.edit(i, func(n *NodeModel) { n.ReadyOld = true })
	case m.isProbe(is, "new") && m.nodes[i].ProbeNew && (m.nodes[i].Selected || !m.adopting()):
		m.edit(i, func(n *NodeModel) { n.ReadyNew = true })
	default:
		return never
	}
	return nil
}

func (m *machine) reachEmpty(is step.NoPods, never *verify.Never) error {
	if !slices.Equal(is.CIDRs, m.plan.Source.PodCIDRs) {
		return never
	}
	if is.Node != "" {
		i, err := m.node(is.Node)
		if is.LeaveDaemons && err == nil && m.nodes[i].drained(is) {
			return nil
		}
		if err != nil || m.nodes[i].PodsOld && !(is.LeaveEnding && m.nodes[i].Moved) {
			return never
		}
		m.edit(i, func(n *NodeModel) { n.Emptied = !n.PodsOld })
		return nil
	}
	if m.tally.podsOld > 0 || m.tally.onTarget < m.tally.nodes || m.tally.emptied < m.tally.nodes {
		return never
	}
	m.set("known empty", true)
	return nil
}

func (m *machine) isTarget(is step.PodReady) bool {
	return is.Selector == m.plan.Target.Selector && is.Namespace == m.plan.Target.Agent.Namespace
}

func (m *machine) isProbe(is step.PodReady, network string) bool {
	return is.Namespace == v1alpha1.Namespace && strings.HasPrefix(is.Selector, v1alpha1.LabelProbe+"="+network+",") &&
		strings.HasSuffix(is.Selector, manifest.LabelNode+"="+manifest.NodeValue(is.Node))
}

// holds reports whether a condition is known to hold.
func (m *machine) holds(c step.Condition) bool {
	i, known := m.index[c.Node()]
	switch is := c.Is.(type) {
	case step.Established:
		return m.facts[serves(is.Ref)]
	case step.Rolled:
		return m.facts[rolledOut(is.Ref)]
	case step.NodeReady:
		return known && !m.nodes[i].Away
	case step.Gone:
		if i, known := m.index[is.Ref.Name]; known && is.Ref.Kind == "Node" {
			return m.nodes[i].Away
		}
		return !m.facts[exists(is.Ref)]
	case step.NodesAmong:
		return m.among(is.Nodes)
	case step.NoPods:
		if known && is.LeaveDaemons {
			return m.nodes[i].drained(is)
		}
		return is.Node == "" && m.facts["known empty"] ||
			known && (!m.nodes[i].PodsOld || is.LeaveEnding && m.nodes[i].Moved)
	case step.PodReady:
		switch {
		case !known:
			return false
		case m.isTarget(is):
			return m.nodes[i].TargetAgent
		case is.Selector == m.plan.Source.Selector:
			return m.nodes[i].SourceAgent
		}
		return m.isProbe(is, "old") && m.nodes[i].ReadyOld || m.isProbe(is, "new") && m.nodes[i].ReadyNew
	}
	return false
}
