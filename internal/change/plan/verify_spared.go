package plan

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/theseus-cni/theseus/internal/step"
)

// sparing says whether an action keeps connections off a port on a node, or no longer does, and nothing else. Where two
// networks are joined that is part of another action.
func sparing(a *step.Action) bool {
	var args step.JoinArgs
	return a.Op == step.Node && (a.Verb == step.VerbJoin || a.Verb == step.VerbPart) &&
		json.Unmarshal(a.Args, &args) == nil && len(args.Old)+len(args.New) == 0
}

// verifySpared proves of what is sparing: where a network that exempts a port stays, it comes on every node before anything
// of the network is touched; when measuring is proven, in a step that is gated and whose undo takes it back; and before
// Theseus' agents go it is taken back on every node.
func verifySpared(p *Plan) error {
	stays := p.Rollout != nil || p.Upgrade != nil || p.Pools != nil
	port := cmp.Or(p.Target.Capabilities.Untracked, p.Source.Capabilities.Untracked)
	spared, measured := map[string]bool{}, false
	for i := range p.Steps {
		s := &p.Steps[i]
		now := map[string]bool{}
		for j := range s.Actions {
			switch a := &s.Actions[j]; {
			case a.Op == step.Delete && *a.Ref == agentRef() && len(spared) > 0:
				return fmt.Errorf("step %s: nobody would take back what keeps connections off a port on %d nodes", s.ID, len(spared))
			case stays && port != nil && foreign(a) && len(spared) < len(p.Cluster.Nodes):
				return fmt.Errorf("step %s: connections are kept off UDP port %d on %d of %d nodes", s.ID, port.Port, len(spared), len(p.Cluster.Nodes))
			case sparing(a) && a.Verb == step.VerbPart:
				delete(spared, a.NodeName)
			case sparing(a):
				spared[a.NodeName], now[a.NodeName] = true, true
			}
		}
		if len(now) > 0 && (!measured || s.Gate == nil) {
			return fmt.Errorf("step %s: connections are kept off a port before measuring is proven, or without a gate", s.ID)
		}
		for j := range s.Undo {
			if a := &s.Undo[j]; sparing(a) && a.Verb == step.VerbPart {
				delete(now, a.NodeName)
			}
		}
		if len(now) > 0 {
			return fmt.Errorf("undo of step %s: connections are kept off a port on %d nodes", s.ID, len(now))
		}
		measured = measured || s.Gate != nil && s.Gate.Baseline
	}
	return nil
}
