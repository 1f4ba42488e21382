package encapsulation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/step"
)

// carrying carries a model of a change of encapsulation through its actions.
type carrying struct {
	plan *kind.Plan
	// joined and pinned are nodes; seen are those that have had all of the network's routes, by the way that the pool
	// says, since it says so.
	joined, pinned, seen map[string]bool
	// followed are pinned to the network's own routes.
	followed map[string]bool
	changed  bool // the pool says what it is to
	reserved bool // no pod gets the addresses of tunnels
	// fresh are those pinned in this step, and lingers those that kept the address of their tunnel.
	fresh, lingers map[string]bool
	measured       bool // a baseline gate was passed
	touched        bool
	past           bool      // the point of no return
	before         *carrying // the step
}

// rules prove on every prefix: nothing changes before measuring is proven; nodes are pinned when they all accept
// packets that come by another way; the pool says something else only while all are pinned, and connections keep the
// addresses of tunnels that end; a node goes by the network's own routes only when all nodes have all of them by the
// way that the pool says; pins go when all nodes do, past the point of no return alone; the nodes filter again only
// when none is pinned; each of these is gated, and taken back by its undo until then; and at the end the pool is
// changed, and nothing else.
func rules(p *kind.Plan) ([]kind.Rule, error) {
	if p.Encapsulation == nil {
		return nil, nil
	}
	m := &carrying{plan: p, joined: map[string]bool{}, pinned: map[string]bool{}, seen: map[string]bool{},
		lingers: map[string]bool{}, followed: map[string]bool{}}
	for _, node := range p.Cluster.Nodes {
		m.seen[node] = true
	}
	return []kind.Rule{{Before: m.begin, Act: func(_ *step.Step, a *step.Action) error { return m.act(a) },
		After: m.gated, Undo: m.takenBack, End: m.end}}, nil
}

// begin remembers what the nodes do before a step.
func (m *carrying) begin(s *step.Step) error {
	m.before = m.copied()
	m.past = m.past || s.NoReturn
	m.touched, m.fresh = false, map[string]bool{}
	return nil
}

func (m *carrying) gated(s *step.Step) error {
	all := len(m.plan.Cluster.Nodes)
	if m.touched && (s.Gate == nil || m.past && len(m.before.followed) != all || len(m.seen) != all) {
		return errors.New("it changes the routes between nodes, and has no gate or no undo, or does not wait for " +
			"the routes")
	}
	m.measured = m.measured || s.Gate != nil && s.Gate.Baseline
	return nil
}

func (m *carrying) takenBack(s *step.Step) error {
	if !m.touched || m.past {
		return nil
	}
	back, before := m.copied(), m.before
	for j := range s.Undo {
		if err := back.act(&s.Undo[j]); err != nil {
			return err
		}
	}
	if back.changed != before.changed || !maps.Equal(back.joined, before.joined) ||
		!maps.Equal(back.pinned, before.pinned) || !maps.Equal(back.seen, before.seen) ||
		!maps.Equal(back.followed, before.followed) {
		return errors.New("after the undo, the nodes and the pool are not as they were before the step")
	}
	return nil
}

func (m *carrying) end() error {
	if !m.changed || len(m.pinned)+len(m.joined) > 0 {
		return errors.New("at the end the pool is not changed, or nodes are still pinned")
	}
	return nil
}

func (m *carrying) copied() *carrying {
	c := *m
	for _, nodes := range []*map[string]bool{&c.joined, &c.pinned, &c.seen, &c.followed, &c.fresh, &c.lingers} {
		*nodes = maps.Clone(*nodes)
	}
	return &c
}

func (m *carrying) act(a *step.Action) error {
	switch do := a.Do.(type) {
	case step.Node:
		return m.onNode(do)
	case step.Apply:
		ref := step.RefOf(do.Object)
		if reserves := m.plan.Encapsulation.Reserves; reserves != "" && ref.Kind == "IPReservation" &&
			ref.Name == reserves {
			m.reserved = true
			return nil
		}
		return own(ref)
	case step.Delete:
		return own(do.Ref)
	case step.Patch:
		return m.patch(do)
	case step.Probe, step.Wait:
		return nil
	}
	return fmt.Errorf("the operation %q is not allowed here", a.Op())
}

func own(ref step.Ref) error {
	if !verify.Ours(ref) {
		return fmt.Errorf("%s is not Theseus'", ref)
	}
	return nil
}

func (m *carrying) patch(do step.Patch) error {
	e, all := m.plan.Encapsulation, len(m.plan.Cluster.Nodes)
	var says struct {
		Spec map[string]*string `json:"spec"`
	}
	if err := json.Unmarshal(do.Merge, &says); err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	mode := carriages["none"].mode
	if text := says.Spec["vxlanMode"]; text != nil {
		mode = *text
	}
	want, then := e.To, true
	if m.changed {
		want, then = e.From, false
	}
	switch {
	case do.Ref.Kind != "IPPool" || do.Ref.Name != e.Pool || len(says.Spec) != 1 || mode != carriages[want].mode:
		return fmt.Errorf("it does not set IPPool %s to %s", e.Pool, want)
	case len(m.pinned) != all || len(m.followed) > 0 || then && len(m.fresh) != all:
		return fmt.Errorf("%d of %d nodes are pinned, %d of them with renewed pins", len(m.pinned), all, len(m.fresh))
	case e.Reserves != "" && (!m.reserved || len(m.lingers) != all):
		return errors.New("connections would lose the addresses of tunnels that end")
	}
	m.changed, m.touched, m.seen = then, true, map[string]bool{}
	return nil
}

func (m *carrying) onNode(do step.Node) error {
	switch {
	case !slices.Contains(m.plan.Cluster.Nodes, do.NodeName):
		return fmt.Errorf("node %q is not of this cluster", do.NodeName)
	case !m.measured:
		return errors.New("the network must not change before measuring is proven")
	case do.Verb == step.VerbJoin || do.Verb == step.VerbPart:
		return m.join(do)
	}
	var args step.PinArgs
	if err := json.Unmarshal(do.Args, &args); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	if !slices.Equal(args.Within, m.plan.Encapsulation.Ranges) {
		return fmt.Errorf("the ranges are %v, not %v", m.plan.Encapsulation.Ranges, args.Within)
	}
	says := m.plan.Encapsulation.From
	if m.changed {
		says = m.plan.Encapsulation.To
	}
	switch do.Verb {
	case step.VerbPin:
		return m.pin(do.NodeName, args)
	case step.VerbRouted:
		if args.Way != carriages[says].way {
			return fmt.Errorf("it waits for the encapsulation %q, but the pool has %s", args.Way, says)
		}
		m.seen[do.NodeName] = true
	case step.VerbFollow, step.VerbUnpin:
		if args.Way != carriages[says].way || len(m.seen) != len(m.plan.Cluster.Nodes) {
			return fmt.Errorf("%d of %d nodes have had all routes since the pool was set to %s",
				len(m.seen), len(m.plan.Cluster.Nodes), says)
		}
		m.touched = true
		switch {
		case do.Verb == step.VerbUnpin && m.changed && !m.past:
			return errors.New("nodes would open connections that an undo breaks")
		case do.Verb == step.VerbFollow && !m.pinned[do.NodeName]:
			return errors.New("it is not pinned")
		case do.Verb == step.VerbFollow:
			m.followed[do.NodeName] = true
			return nil
		}
		delete(m.pinned, do.NodeName)
	default:
		return fmt.Errorf("the verb %q is not allowed here", do.Verb)
	}
	return nil
}

func (m *carrying) pin(node string, args step.PinArgs) error {
	if len(m.joined) != len(m.plan.Cluster.Nodes) {
		return fmt.Errorf("%d of %d nodes accept packets that arrive over another path than their replies take",
			len(m.joined), len(m.plan.Cluster.Nodes))
	}
	if args.Linger {
		if !m.reserved {
			return errors.New("the addresses of the tunnels are not reserved, so pods could get them")
		}
		m.lingers[node] = true
	}
	m.pinned[node], m.fresh[node], m.touched = true, true, true
	delete(m.followed, node)
	return nil
}

func (m *carrying) join(do step.Node) error {
	var args step.JoinArgs
	if err := json.Unmarshal(do.Args, &args); err != nil || !slices.Equal(args.Old, args.New) ||
		!slices.Equal(args.Old, m.plan.Encapsulation.Ranges) {
		return fmt.Errorf("the ranges are %v, not %v and %v (%w)", m.plan.Encapsulation.Ranges, args.Old, args.New, err)
	}
	if m.touched = true; do.Verb == step.VerbJoin {
		m.joined[do.NodeName] = true
		return nil
	}
	if delete(m.joined, do.NodeName); len(m.pinned) > 0 {
		return fmt.Errorf("%d nodes are pinned", len(m.pinned))
	}
	return nil
}
