package replace

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

func hostProberRef() step.Ref {
	return step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: v1alpha1.Namespace,
		Name: manifest.HostProberName}
}

// act does one action on the model, or says why it must not be done now.
func (m *machine) act(a *step.Action) error {
	switch do := a.Do.(type) {
	case step.Apply:
		return m.apply(do.Object)
	case step.Delete:
		return m.remove(do.Ref)
	case step.Patch:
		return m.patch(do)
	case step.Taint:
		return m.taint(do, true)
	case step.Untaint:
		return m.taint(step.Taint(do), false)
	case step.Evict:
		return m.evict(do.Pods)
	case step.Node:
		return m.onNode(do)
	case step.Wait:
		return m.reach(do.Condition)
	case step.Restart:
		return m.restart(do)
	case step.Hook:
		return m.hook(do)
	case step.Probe:
		return m.probe(do.Paths)
	}
	return fmt.Errorf("the operation %q is not known", a.Op())
}

func (m *machine) node(name string) (int, error) {
	i, ok := m.index[name]
	if !ok {
		return 0, fmt.Errorf("node %q is in no wave", name)
	}
	return i, nil
}

func (m *machine) apply(object *unstructured.Unstructured) error {
	ref := step.RefOf(object)
	if err := m.appliable(ref, object); err != nil {
		return err
	}
	if wanted := m.introducing[ref]; wanted != nil && !bytes.Equal(joint.Canonical(wanted), joint.Canonical(object)) {
		return fmt.Errorf("%s is not the object that introduces the source's pods to the target's agents", ref)
	}
	m.set(exists(ref), true)
	m.set(rolledOut(ref), false)
	if ref.Kind == "Namespace" && ref.Name == v1alpha1.Namespace {
		m.set(admits, manifest.AdmitsPrivileged(object))
	}
	if network := object.GetLabels()[v1alpha1.LabelProbe]; network != "" && ref.Kind == "Pod" {
		return m.makeProbe(object, network)
	}
	if maker := m.plan.Target.Maker; maker != nil && ref == maker.Ref {
		m.makes(maker, true)
		return m.applyAgent(object, maker.NodeSelector...)
	}
	if ref == m.plan.Target.Agent {
		return m.applyAgent(object, "spec", "template", "spec", "nodeSelector")
	}
	return nil
}

// admits: Theseus' namespace admits privileged pods.
const admits = "admits privileged pods"

// makes lets what an operator makes of an object come or go. Which form that has by now is not known yet.
func (m *machine) makes(maker *cni.Maker, there bool) {
	for _, ref := range maker.Makes {
		m.set(exists(ref), there)
		m.set(rolledOut(ref), false)
	}
	m.set(seenMade, false)
}

// seenMade: the form of the agents' DaemonSet that an operator makes was seen.
const seenMade = "known made"

func (m *machine) appliable(ref step.Ref, object *unstructured.Unstructured) error {
	if ref.Namespace == v1alpha1.Namespace &&
		!m.facts[exists(step.Ref{APIVersion: "v1", Kind: "Namespace", Name: v1alpha1.Namespace})] {
		return errors.New("the namespace " + v1alpha1.Namespace + " is not there yet")
	}
	gvk := object.GroupVersionKind()
	if definition, ok := m.kinds[gvk.Group+"/"+gvk.Kind]; ok && !m.facts[serves(definition)] {
		return fmt.Errorf("%s is not known to serve", definition)
	}
	if verify.Ours(ref) {
		return nil
	}
	if !m.facts["baseline"] {
		return errors.New("only Theseus' own objects may be created before measuring is proven")
	}
	if m.adopting() && !m.noReturn && m.tally.joined < m.tally.nodes {
		return errors.New("the networks must be joined on every node before any object of the target is created")
	}
	return nil
}

// applyAgent: at is where the node selector of agents is in the object.
func (m *machine) applyAgent(object *unstructured.Unstructured, at ...string) error {
	selector, _, _ := unstructured.NestedStringMap(object.Object, at...)
	gated := selector[v1alpha1.LabelTarget] == "true"
	m.set("gated", gated)
	if gated {
		for _, ref := range m.plan.Target.Defines {
			if !m.facts[absent(ref)] {
				return fmt.Errorf("the target creates %s and a rollback deletes it, but the plan does not check that "+
					"it does not exist before", ref)
			}
		}
		if cession := m.plan.Source.Cession; cession != nil {
			for i := range cession.Rights {
				if ref := step.RefOf(&cession.Rights[i]); !m.facts[exists(ref)] {
					return fmt.Errorf("agents of the source could not start next to the target without %s", ref)
				}
			}
		}
		return nil
	}
	if !m.noReturn || m.tally.sourceResidue > 0 {
		return errors.New("the target may run without the label only when nothing of the source is left")
	}
	return nil
}

func (m *machine) makeProbe(object *unstructured.Unstructured, network string) error {
	name, _, _ := unstructured.NestedString(object.Object, "spec", "nodeName")
	i, err := m.node(name)
	if err != nil {
		return err
	}
	if want := map[string]Side{"old": Source, "new": Target}[network]; m.nodes[i].Active != want {
		return fmt.Errorf("a pod that is created on %s now is on the %s network, not on the "+
			"%s", name, m.nodes[i].Active, network)
	}
	if !m.hands(i) {
		return errors.New("the agents are not ready, so probe pods would get no paths")
	}
	m.edit(i, func(n *NodeModel) {
		if network == "old" {
			n.ProbeOld = true
			return
		}
		n.ProbeNew = true
	})
	return nil
}

func (m *machine) remove(ref step.Ref) error {
	if m.undoing && m.facts[absent(ref)] { // the target may have created it since
		m.set(absent(ref), false)
		return nil
	}
	if !m.facts[exists(ref)] {
		return fmt.Errorf("%s does not exist", ref)
	}
	if m.parts[ref] {
		if !m.noReturn {
			return fmt.Errorf("%s belongs to the source, which stays until the point of no return", ref)
		}
		if m.tally.podsOld > 0 {
			return fmt.Errorf("%s belongs to the source, which may still have pods", ref)
		}
		if m.adopting() && m.tally.yielded < m.tally.nodes {
			return fmt.Errorf("%s belongs to the source, which routes the outgoing traffic of %d nodes",
				ref, m.tally.nodes-m.tally.yielded)
		}
	}
	if cession := m.plan.Source.Cession; cession != nil && ref == step.RefOf(cession.Keep) &&
		(m.facts[ceding] && m.tally.podsOld > 0 || m.tally.ceded > 0 && !m.noReturn) {
		return fmt.Errorf("%s does what the source's agent does not do any more", ref)
	}
	if m.keepsRight(ref) && m.facts[exists(m.plan.Source.Agent)] && m.facts[exists(m.plan.Target.Agent)] {
		return fmt.Errorf("%s lets agents of the source start next to the target", ref)
	}
	m.set(exists(ref), false)
	m.set(rolledOut(ref), false)
	m.set(serves(ref), false)
	if maker := m.plan.Target.Maker; maker != nil && ref == maker.Ref {
		if m.tally.targetAgents > 0 {
			return fmt.Errorf("%s creates the target's agents, and some of them run", ref)
		}
		m.makes(maker, false)
	}
	switch ref {
	case m.plan.Source.Agent:
		m.everywhere(func(n *NodeModel) { n.SourceAgent = false })
	case m.plan.Target.Agent:
		m.everywhere(func(n *NodeModel) { n.TargetAgent = false })
	case hostProberRef():
		if slices.ContainsFunc(m.nodes, func(n NodeModel) bool { return n.MeasuredOld || n.MeasuredNew }) {
			return fmt.Errorf("hosts are measured, and the end of %s would count as loss", ref)
		}
	case verify.AgentRef():
		if m.tally.probes > 0 {
			return errors.New("probe pods exist, and they need the agents")
		}
	}
	return m.removeProbe(ref)
}

func (m *machine) everywhere(change func(*NodeModel)) {
	for i := range m.nodes {
		m.edit(i, change)
	}
}

func (m *machine) removeProbe(ref step.Ref) error {
	if ref.Kind != "Pod" || ref.Namespace != v1alpha1.Namespace {
		return nil
	}
	for _, network := range []string{"old", "new"} {
		prefix := manifest.ProbePodName("", network)
		i, ok := m.index[strings.TrimPrefix(ref.Name, prefix)]
		if !ok || !strings.HasPrefix(ref.Name, prefix) {
			continue
		}
		n := m.nodes[i]
		if network == "old" && n.MeasuredOld || network == "new" && n.MeasuredNew {
			return fmt.Errorf("%s is measured, and its end would count as loss", ref)
		}
		m.edit(i, func(n *NodeModel) {
			if network == "old" {
				n.ProbeOld, n.ReadyOld = false, false
				return
			}
			n.ProbeNew, n.ReadyNew = false, false
		})
	}
	return nil
}

// patch follows the target's label on nodes; patches of objects only need their object.
func (m *machine) patch(do step.Patch) error {
	if do.Ref.Kind != "Node" {
		if !m.facts[exists(do.Ref)] {
			return fmt.Errorf("%s does not exist", do.Ref)
		}
		switch {
		case m.reserves(do.Ref):
			m.set(left(do.Ref), true)
		case m.adopting():
			return m.carry(do.Ref)
		case m.plan.Source.Cession != nil && do.Ref == m.plan.Source.Agent:
			return m.cede(do)
		}
		return nil
	}
	i, err := m.node(do.Ref.Name)
	if err != nil {
		return err
	}
	patch, err := m.labels.Read(do.Merge)
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	if value, ok := patch.Metadata.Labels[v1alpha1.LabelAdopted]; ok && m.adopting() {
		return m.selected(i, value != nil)
	}
	if value, ok := patch.Metadata.Labels[v1alpha1.LabelSlot]; ok && value == nil && m.noReturn {
		m.edit(i, func(n *NodeModel) { n.Slot = false })
		return nil
	}
	value, ok := patch.Metadata.Labels[v1alpha1.LabelTarget]
	if !ok {
		return errors.New("only the label " + v1alpha1.LabelTarget + " of a node may be patched")
	}
	if m.plan.Source.Cession != nil && value != nil && !m.facts[ceding] {
		return fmt.Errorf("the agents of both networks would enforce policy on node %s", do.Ref.Name)
	}
	if value == nil {
		m.edit(i, func(n *NodeModel) {
			n.Labelled, n.Ceded = false, false
			n.TargetAgent = n.TargetAgent && !m.facts["gated"]
		})
		return nil
	}
	if m.plan.Target.Maker != nil && !m.facts[seenMade] {
		return fmt.Errorf("the plan does not check that the operator makes the target's agent wait for the label of %s",
			do.Ref.Name)
	}
	if !m.facts[exists(m.plan.Target.Agent)] || !m.facts["gated"] || !m.nodes[i].Joined {
		return fmt.Errorf("before node %s gets the label, it must be joined, and the target's agent must wait for "+
			"the label",
			do.Ref.Name)
	}
	for _, part := range m.plan.Target.Parts {
		if !m.facts[exists(part)] && m.adopting() {
			return fmt.Errorf("%s does not exist yet, and the target's first agent would start without it", part)
		}
	}
	m.note("label", do.Ref.Name)
	m.set(rolledOut(m.plan.Target.Agent), false)
	m.edit(i, func(n *NodeModel) { n.Labelled, n.TargetResidue, n.Staged = true, true, true })
	return nil
}

// keepsRight reports whether an object is a right that the source's agents keep.
func (m *machine) keepsRight(ref step.Ref) bool {
	cession := m.plan.Source.Cession
	return cession != nil && slices.ContainsFunc(cession.Rights,
		func(right unstructured.Unstructured) bool { return step.RefOf(&right) == ref })
}

// ceding: the source's agent leaves nodes that get the target's label, and something does the rest of its work there.
const ceding = "ceding"

// cede follows the patches of the source's agent.
func (m *machine) cede(do step.Patch) error {
	cession := m.plan.Source.Cession
	switch {
	case bytes.Equal(do.Merge, joint.Canonical(cession.Leave)):
		if !m.facts[exists(step.RefOf(cession.Keep))] || m.tally.labelled > 0 {
			return fmt.Errorf("%s leaves nodes on which nothing does the rest of its work", do.Ref)
		}
		if !m.facts[exists(m.plan.Target.Agent)] {
			return fmt.Errorf("%s leaves nodes on which nothing enforces policy", do.Ref)
		}
		m.set(ceding, true)
	case bytes.Equal(do.Merge, joint.Canonical(cession.Return)) && m.undoing:
		if m.tally.labelled > 0 {
			return fmt.Errorf("the agents of both networks would enforce policy on %d nodes", m.tally.labelled)
		}
		m.set(ceding, false)
	default:
		return fmt.Errorf("the patch of %s is none by which it leaves nodes", do.Ref)
	}
	return nil
}

// restart takes an agent away from a node for a moment. Where its own form keeps its rules elsewhere than the
// joint form does, what it denies must be guarded.
func (m *machine) restart(do step.Restart) error {
	i, err := m.node(do.NodeName)
	switch {
	case err != nil:
		return err
	case !m.facts[exists(do.Ref)]:
		return fmt.Errorf("%s does not exist", do.Ref)
	case m.guards && !m.nodes[i].Guarded:
		return fmt.Errorf("no guard on %s denies what %s denies while %[2]s restarts", do.NodeName, do.Ref)
	}
	m.edit(i, func(n *NodeModel) { n.OwnForm = !m.facts["gated"] })
	return nil
}

// note keeps the order in which nodes are changed, which must be that of the waves.
func (m *machine) note(what, node string) {
	if !m.undoing {
		m.order[what] = append(m.order[what], node)
	}
}

func (m *machine) taint(do step.Taint, sets bool) error {
	i, err := m.node(do.NodeName)
	if err != nil {
		return err
	}
	if do.Taint.Effect == corev1.TaintEffectNoSchedule {
		return m.repel(i, sets)
	}
	if !sets && !m.nodes[i].Pending && !m.undoing {
		return fmt.Errorf("node %s has no taint", do.NodeName)
	}
	if m.plan.Source.Cession != nil && sets && m.lacking() != "" {
		return fmt.Errorf("%s does not exist yet, and no node can be switched", m.lacking())
	}
	m.edit(i, func(n *NodeModel) { n.Pending = sets })
	return nil
}

func (m *machine) evict(set step.PodSet) error {
	i, err := m.node(set.Node)
	if err != nil {
		return err
	}
	switch {
	case m.adopting():
		if !m.nodes[i].Selected || len(set.Names) == 0 {
			return fmt.Errorf("pods may be evicted from %s only by name, and when the target serves new ones", set.Node)
		}
		m.edit(i, func(n *NodeModel) { n.PodsOld, n.Emptied = false, true })
	case set.LeaveDaemons:
		return m.drain(i, set)
	case slices.Equal(set.CIDRs, m.plan.Source.PodCIDRs):
		if m.nodes[i].Active != Target {
			return fmt.Errorf("pods evicted from %s now would start on the source again", set.Node)
		}
		if !set.LeaveEnding && !m.nodes[i].Moved && !m.nodes[i].Added {
			return fmt.Errorf("it waits for the last pods of %s, and the others were not moved", set.Node)
		}
		m.edit(i, func(n *NodeModel) {
			n.Moved, n.PodsNew = true, !n.Repels
			n.PodsOld, n.Emptied = n.PodsOld && set.LeaveEnding, !set.LeaveEnding
		})
	case slices.Equal(set.CIDRs, m.plan.Target.PodCIDRs):
		if m.nodes[i].Active != Source {
			return fmt.Errorf("pods evicted from %s now would start on the target again", set.Node)
		}
		m.edit(i, func(n *NodeModel) { n.PodsOld, n.PodsNew, n.Moved = true, false, false })
	default:
		return fmt.Errorf("the ranges %v belong to neither network", set.CIDRs)
	}
	return nil
}

func (m *machine) probe(set step.PathSet) error {
	if prober := hostProberRef(); m.facts[exists(prober)] && !m.facts[rolledOut(prober)] &&
		len(set.Old)+len(set.New) > 0 {
		return fmt.Errorf("the plan does not check that %s is ready, and hosts would not answer", prober)
	}
	everyOld, everyNew := slices.Contains(set.Old, step.EveryNode), slices.Contains(set.New, step.EveryNode)
	count := 0
	for i := range m.nodes {
		n := &m.nodes[i]
		measuredOld := n.ReadyOld && (everyOld || slices.Contains(set.Old, n.Name))
		measuredNew := n.ReadyNew && (everyNew || slices.Contains(set.New, n.Name)) &&
			!slices.Contains(set.WithoutNew, n.Name)
		if slices.Contains(set.Leaving, n.Name) {
			measuredOld, measuredNew = false, false
		}
		if measuredOld != n.MeasuredOld || measuredNew != n.MeasuredNew {
			m.edit(i, func(n *NodeModel) { n.MeasuredOld, n.MeasuredNew = measuredOld, measuredNew })
		}
		if measuredOld || measuredNew {
			count++
		}
	}
	if len(set.Old)+len(set.New) > 0 && count == 0 {
		return errors.New("no probe pod is ready, so no path would be measured")
	}
	return nil
}
