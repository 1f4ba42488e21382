package verify

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// Nearness judges which gates may ask only the nodes that their step concerns. It is given the steps of a plan in their
// order. The zero value has seen none.
type Nearness struct {
	changed map[string]map[string]bool // nodes, by kind of step
	asked   map[string]int             // how many had changed at the last gate that asked all, by kind of step
}

// Next takes the next step, and says why its gate must ask all nodes; nil if it need not. Only a step that acts on its
// own nodes alone may have such a gate, and not if it ends a wave, is the first of its kind, or makes the number of
// changed nodes twice that at the last gate that asked all.
func (n *Nearness) Next(s *step.Step) error {
	if s.Wave == "" {
		return errors.New("the step belongs to no wave")
	}
	if n.changed == nil {
		n.changed, n.asked = map[string]map[string]bool{}, map[string]int{}
	}
	if n.changed[s.Does] == nil {
		n.changed[s.Does] = map[string]bool{}
	}
	for _, node := range s.Nodes() {
		n.changed[s.Does][node] = true
	}
	now := len(n.changed[s.Does])
	switch g := s.Gate; {
	case g == nil:
	case !s.Local():
		return errors.New("the step also acts on others")
	case OnAll(g):
		return errors.New("its conditions must hold on all nodes")
	case now >= 2*n.asked[s.Does]:
		return fmt.Errorf("%d nodes have changed, and only %d had at the last gate that asked all", now,
			n.asked[s.Does])
	}
	return nil
}

// OnAll reports whether a gate has conditions that only all nodes together can show, or ends a wave.
func OnAll(g *step.Gate) bool {
	return g.Baseline || g.Result || g.Bake > 0 || g.Compares() || g.Args != nil || g.Sessions != nil
}

// AsksAll notes that the gate of the step that Next has just taken asks all nodes.
func (n *Nearness) AsksAll(s *step.Step) {
	if s.Wave != "" {
		n.asked[s.Does] = len(n.changed[s.Does])
	}
}

// near bounds what gates may miss that do not ask all nodes: Nearness must allow each of them, and the last gate of a
// kind of step asks all.
func near() kind.Rule {
	var judge Nearness
	after := func(s *step.Step) error {
		why := judge.Next(s)
		switch {
		case s.Gate == nil:
		case !s.Gate.Near:
			judge.AsksAll(s)
		case why != nil:
			return fmt.Errorf("its gate asks only some nodes, but %w", why)
		}
		return nil
	}
	end := func() error {
		for _, does := range slices.Sorted(maps.Keys(judge.changed)) {
			if now := len(judge.changed[does]); judge.asked[does] > 0 && judge.asked[does] < now {
				return fmt.Errorf("the last step of kind %s has no gate that asks all nodes", does)
			}
		}
		return nil
	}
	return kind.Rule{After: after, End: end}
}
