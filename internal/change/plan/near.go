package plan

import (
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// narrow lets gates ask only the nodes that their step concerns, where verify.Nearness allows it, and not after the
// last step of a kind. In a small cluster, all nodes report often enough. Where the source has BGP sessions, gates look
// at those of all nodes.
func narrow(p *Plan) {
	if !path.Asks(len(p.Cluster.Nodes)) || p.Source.Capabilities.Sessions {
		return
	}
	last := map[string]int{}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Local() {
			last[s.Does] = i
		}
	}
	var judge verify.Nearness
	for i := range p.Steps {
		s := &p.Steps[i]
		why := judge.Next(s)
		switch {
		case s.Gate == nil:
		case why == nil && last[s.Does] != i:
			s.Gate.Near = true
		default:
			judge.AsksAll(s)
		}
	}
}
