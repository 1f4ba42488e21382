package plan

import (
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// narrow lets gates ask only the nodes that their step concerns, where verify.Near allows it: the gates between two
// that ask all nodes, which come whenever the nodes that steps of a kind have changed have doubled, and after the
// last. In a small cluster, all nodes report often enough. Where the source has BGP sessions, gates look at those
// of all nodes.
func narrow(p *Plan) {
	if len(p.Cluster.Nodes) < estimate.NearFrom || p.Source.Capabilities.Sessions {
		return
	}
	type tally struct{ changed, asked int }
	kinds, last := map[string]*tally{}, map[string]int{}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Local() {
			last[s.Does] = i
		}
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if !s.Local() {
			continue
		}
		of := kinds[s.Does]
		if of == nil {
			of = &tally{}
			kinds[s.Does] = of
		}
		of.changed += len(s.Nodes())
		switch {
		case s.Gate == nil:
		case of.changed >= 2*of.asked || last[s.Does] == i || !narrowable(s.Gate):
			of.asked = of.changed
		default:
			s.Gate.Near = true
		}
	}
}

// narrowable reports whether a gate demands nothing that only all nodes together can show, nor ends a wave.
func narrowable(g *step.Gate) bool {
	return !g.Baseline && !g.Result && !g.Compares() && g.Bake == 0 && g.Args == nil
}
