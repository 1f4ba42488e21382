package replace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Simulate gives the model before the first step and after every step. A plan that breaks a rule is
// simulated as far as the rule holds.
func Simulate(p *kind.Plan) []Model {
	m := newMachine(p)
	models := []Model{m.model("")}
	_ = verify.Hold(p, []kind.Rule{{Before: m.begin, Act: m.acts, Each: m.sound, After: func(s *step.Step) error {
		if err := m.reached(s); err != nil {
			return err
		}
		models = append(models, m.model(s.ID))
		return nil
	}}})
	return models
}

func (m *machine) model(after string) Model {
	present := map[string]bool{}
	for fact, holds := range m.facts {
		if name, ok := strings.CutPrefix(fact, "exists "); ok && holds {
			present[name] = true
		}
	}
	return Model{After: after, Nodes: slices.Clone(m.nodes), Present: present}
}

// rules prove on every prefix of a plan: that each step's precondition is known to hold, that
// both networks are whole while both have pods, that nothing of the source goes before the point of no
// return, that every node always has one configuration, that every change is gated, that every prefix
// before the point of no return can be taken back to the beginning, and that at the end nothing is left
// of the source or of Theseus.
func rules(p *kind.Plan) ([]kind.Rule, error) {
	if p.Section() != nil {
		return nil, nil
	}
	m := newMachine(p)
	return []kind.Rule{{Before: m.begin, Act: m.acts, Each: m.sound, After: m.reached,
		Undo: m.takenBack, End: m.end}}, nil
}

// begin demands what a step needs.
func (m *machine) begin(s *step.Step) error {
	for _, condition := range s.Before {
		if !m.holds(condition) {
			return fmt.Errorf("not known before it: %s", verify.Phrase(condition))
		}
		// A step that has acted is undone, also after a failure. So the CRDs are looked for before it acts.
		if gone, is := condition.Is.(step.Gone); is && len(s.Actions) > 0 &&
			slices.Contains(m.plan.Target.Defines, gone.Ref) && !m.facts[exists(m.plan.Target.Agent)] {
			m.set(absent(gone.Ref), true)
		}
	}
	m.noReturn = m.noReturn || s.NoReturn
	return nil
}

func (m *machine) acts(_ *step.Step, a *step.Action) error { return m.act(a) }

// reached takes the model to what a step waits for.
func (m *machine) reached(s *step.Step) error {
	for _, condition := range s.After {
		if err := m.reach(condition); err != nil {
			return err
		}
	}
	return m.gate(s)
}

// takenBack takes a step back where there is a way back. The log is that of one step.
func (m *machine) takenBack(s *step.Step) error {
	defer func() { m.log = m.log[:0] }()
	if m.noReturn {
		return nil
	}
	return m.undoable(s, 0)
}

// sound holds after every single action.
func (m *machine) sound() error {
	all, t := m.tally.nodes, &m.tally
	switch {
	case t.podsOld > 0 && t.sourceAgents < all && m.plan.Source.HasAgent():
		return errors.New("pods may be on the source, which does not run on every node")
	case t.podsNew > 0 && t.targetAgents < all:
		return errors.New("pods may be on the target, which does not run on every node")
	case t.podsOld > 0 && t.podsNew > 0 && t.joined < all:
		return errors.New("pods may be on both networks, which are not joined on every node")
	case t.podsOld > 0 && t.podsNew > 0 && len(m.introducing) > 0 && !m.facts[rolledOut(joint.IntroducerRef())]:
		return errors.New("pods may be on both networks, and no object introduces those of the source to the " +
			"target's agents")
	case t.podsNew > 0 && !m.undoing && slices.ContainsFunc(m.plan.Target.Parts,
		func(part step.Ref) bool { return isPolicy(part) && !m.facts[exists(part)] }):
		return errors.New("pods may be on the target while a policy of its manifest does not exist")
	case len(t.half) > 1 && !m.undoing:
		return errors.New("nodes of more than one wave are switched and not moved")
	}
	if t.podsOld > 0 && t.podsNew > 0 && !m.undoing {
		for _, extra := range m.extras {
			if !m.facts[exists(extra)] {
				return fmt.Errorf("pods may be on both networks, and %s does not exist", extra)
			}
		}
	}
	return nil
}

// gate demands one after every step that changes what traffic crosses, and evidence for it.
func (m *machine) gate(s *step.Step) error {
	if s.Gate == nil {
		if slices.ContainsFunc(s.Actions, m.touchesTraffic) {
			return errors.New("it changes the network, but has no gate")
		}
		return nil
	}
	if m.tally.measured < m.tally.nodes {
		return fmt.Errorf("its gate has evidence from %d of %d nodes", m.tally.measured, m.tally.nodes)
	}
	for _, name := range m.nodesOf(s) {
		if n := &m.nodes[m.index[name]]; n.Active == Target && !n.MeasuredNew {
			return fmt.Errorf("its gate has no evidence of the target on %s", name)
		}
		if n := &m.nodes[m.index[name]]; n.Canary && !n.MeasuredOld && !n.Proven {
			return fmt.Errorf("its gate has no evidence of the adopted probe pod of %s", name)
		}
		m.edit(m.index[name], func(n *NodeModel) { n.Proven = n.Proven || n.Canary || n.Added && n.MeasuredNew })
	}
	if s.Gate.Baseline {
		m.set("baseline", true)
	}
	return nil
}

// nodesOf are the nodes of the plan that a step is about: one, or those of its wave.
func (m *machine) nodesOf(s *step.Step) []string {
	if _, known := m.index[s.Node]; known {
		return []string{s.Node}
	}
	if s.Node != "" {
		return nil
	}
	if m.plan.Surge != nil {
		return m.surging(s.Wave)
	}
	for _, wave := range m.plan.Waves {
		if wave.Name == s.Wave {
			return wave.Nodes
		}
	}
	return nil
}

func (m *machine) touchesTraffic(a step.Action) bool {
	switch do := a.Do.(type) {
	case step.Node:
		verb, _ := step.VerbNamed(do.Verb)
		return !verb.Quiet
	case step.Evict, step.Restart, step.Hook:
		return true
	case step.Delete:
		return m.parts[do.Ref]
	case step.Patch:
		return do.Ref.Kind == "Node" || m.adopting()
	}
	return false
}

// undoable takes a step back and compares with what was before it. As this holds for every step, taking
// back any prefix leads to the beginning. before is the length of the log before the step.
func (m *machine) undoable(s *step.Step, before int) error {
	done := len(m.log)
	first := m.firstValues(before)
	m.undoing = true
	defer func() {
		m.rewind(done)
		m.undoing = false
	}()
	undo := s.Undo
	if len(undo) == 0 {
		undo = m.inverses(s, first)
	}
	for i := range undo {
		err := m.act(&undo[i])
		if err == nil {
			err = m.sound()
		}
		if err != nil {
			return fmt.Errorf("action %s (%s): %w", undo[i].ID, undo[i].Title, err)
		}
	}
	return m.restored(before)
}

// firstValues are the facts that a step changed, as they were before it.
func (m *machine) firstValues(before int) map[string]bool {
	first := map[string]bool{}
	for _, entry := range m.log[before:] {
		if _, ok := first[entry.fact]; entry.node < 0 && !ok {
			first[entry.fact] = entry.held
		}
	}
	return first
}

// inverses are what the engine walks when a step has no undo of its own: what was observed before each
// action, backwards. Evictions and waits have none.
func (m *machine) inverses(s *step.Step, first map[string]bool) []step.Action {
	var undo []step.Action
	for i := len(s.Actions) - 1; i >= 0; i-- {
		action := s.Actions[i]
		if action.Op() != step.OpApply {
			continue
		}
		ref := step.RefOf(action.Object())
		if held, changed := first[exists(ref)]; changed && !held {
			undo = append(undo, step.Action{ID: action.ID + "/back", Do: step.Delete{Ref: ref},
				Title: "delete " + ref.String()})
		}
	}
	return undo
}

// restored compares all that the log touched. Where pods may be, and soft taints, may have become less.
func (m *machine) restored(before int) error {
	seen := map[string]bool{}
	for _, entry := range m.log[before:] {
		key := entry.fact
		if entry.node >= 0 {
			key = "node " + m.nodes[entry.node].Name
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		if entry.node >= 0 {
			if now, then := m.nodes[entry.node], entry.before; !asBefore(now, then) {
				return fmt.Errorf("node %s differs from before: %+v, was %+v", now.Name, now, then)
			}
			continue
		}
		if now := m.facts[key]; now != entry.held && !m.mayDiffer(key) {
			return fmt.Errorf("%q is %t, was %t", key, now, entry.held)
		}
	}
	return nil
}

func asBefore(now, then NodeModel) bool {
	if now.PodsNew && !then.PodsNew || now.Pending && !then.Pending {
		return false
	}
	if now.Adopted && !then.Adopted || now.Swept && !then.Swept {
		return false
	}
	now.PodsOld, now.PodsNew, now.Moved, now.Pending, now.Emptied = then.PodsOld, then.PodsNew,
		then.Moved, then.Pending, then.Emptied
	now.Adopted, now.Swept, now.Verified = then.Adopted, then.Swept, then.Verified
	return now == then
}

// mayDiffer: what was learnt is not unlearnt, and the journal stays, with what it lives in.
func (m *machine) mayDiffer(fact string) bool {
	if strings.HasPrefix(fact, "known ") || fact == "baseline" || fact == "gated" {
		return true
	}
	return slices.ContainsFunc(verify.Kept(), func(ref step.Ref) bool { return fact == exists(ref) })
}

// end demands that nothing is left of the source, of the joint phase or of Theseus.
func (m *machine) end() error {
	all, t := m.tally.nodes, &m.tally
	for _, left := range []struct {
		n    int
		what string
	}{
		{all - t.onTarget, "are not on the target"}, {all - t.targetAgents, "do not run the target"},
		{t.podsOld, "may have pods on the source"}, {t.sourceAgents, "run the source"},
		{t.sourceResidue, "are not cleaned of the source"}, {all - t.recounted, "were not counted again"},
		{t.joined, "still have the joining rules"}, {t.labelled, "still have the label"},
		{t.pending, "still have the taint"}, {t.probes, "still have probe pods"},
		{t.staged, "may have a staged configuration"}, {t.guarded, "still have a guard"},
		{t.selected, "still have the label " + v1alpha1.LabelAdopted},
	} {
		if left.n > 0 {
			return fmt.Errorf("at the end %d of %d nodes %s", left.n, all, left.what)
		}
	}
	if err := m.surged(); err != nil {
		return err
	}
	if m.facts["gated"] {
		return errors.New("at the end the target still waits for the label")
	}
	if m.facts[admits] {
		return errors.New("at the end the namespace " + v1alpha1.Namespace + " still admits privileged pods")
	}
	for _, extra := range m.extras {
		if m.reserves(extra) && (!m.facts[exists(extra)] || !m.facts[left(extra)]) {
			return fmt.Errorf("at the end %s does not exist as the user's own, and new pods could get addresses "+
				"that nodes "+
				"still have", extra)
		}
	}
	for _, fact := range slices.Sorted(maps.Keys(m.facts)) {
		if name, ok := strings.CutPrefix(fact, "exists "); ok && m.facts[fact] && m.mustGo(fact, name) {
			return fmt.Errorf("at the end %s is still there", name)
		}
	}
	return m.inOrder()
}

func (m *machine) mustGo(fact, name string) bool {
	if m.mayDiffer(fact) {
		return false
	}
	if strings.Contains(name, v1alpha1.Group) || strings.Contains(name, "/"+v1alpha1.Namespace+"/") ||
		strings.HasSuffix(name, "/"+manifest.AgentName) {
		return true
	}
	for part := range m.parts {
		if fact == exists(part) {
			return true
		}
	}
	return slices.ContainsFunc(m.extras, func(ref step.Ref) bool { return fact == exists(ref) && !m.reserves(ref) })
}

// reserves says of an extra that it keeps addresses of nodes from new pods, which connections may still have when
// their pods are adopted.
func (m *machine) reserves(extra step.Ref) bool { return m.adopting() && extra.Kind == "IPReservation" }

// inOrder demands that nodes are changed in the order of the waves, which is what a reader was told.
func (m *machine) inOrder() error {
	var wanted []string
	for i := range m.nodes {
		wanted = append(wanted, m.nodes[i].Name)
	}
	if m.plan.Surge != nil {
		return m.surgeOrder(wanted)
	}
	orders := []string{"label", "switch", "clean"}
	if m.adopting() {
		orders = append(orders, "adopt", "yield")
	}
	for _, what := range orders {
		if !slices.Equal(m.order[what], wanted) {
			return fmt.Errorf("nodes do not get the %s in the order of the waves", what)
		}
	}
	return nil
}
