package verify

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// near bounds what gates may miss that do not ask all nodes: none of them ends a wave, is the first or the last of its
// kind of step, or lets a kind of step change as many nodes as had changed when a gate asked all; and the step of such
// a gate acts on its own nodes alone.
func near() kind.Rule {
	changed, asked := map[string]map[string]bool{}, map[string]int{} // by kind of step
	after := func(s *step.Step) error {
		if s.Wave == "" {
			if s.Gate != nil && s.Gate.Near {
				return errors.New("its gate asks only some nodes, but the step belongs to no wave")
			}
			return nil
		}
		if changed[s.Does] == nil {
			changed[s.Does] = map[string]bool{}
		}
		for _, node := range s.Nodes() {
			changed[s.Does][node] = true
		}
		now := len(changed[s.Does])
		switch g := s.Gate; {
		case g == nil:
		case !g.Near:
			asked[s.Does] = now
		case !s.Local():
			return errors.New("its gate asks only some nodes, but the step also acts on others")
		case g.Baseline || g.Result || g.Bake > 0 || g.Compares() || g.Args != nil || g.Sessions != nil:
			return errors.New("its gate asks only some nodes, but its conditions must hold on all nodes")
		case now >= 2*asked[s.Does]:
			return fmt.Errorf("its gate asks only some nodes, "+
				"although %d nodes have changed, and only %d had at the last gate that asked all",
				now, asked[s.Does])
		}
		return nil
	}
	end := func() error {
		for _, does := range slices.Sorted(maps.Keys(changed)) {
			if now := len(changed[does]); asked[does] > 0 && asked[does] < now {
				return fmt.Errorf("the last step of kind %s has no gate that asks all nodes", does)
			}
		}
		return nil
	}
	return kind.Rule{After: after, End: end}
}
