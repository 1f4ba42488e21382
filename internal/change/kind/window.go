package kind

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Stop is a stopping place: the cluster may be left for hours as it is after a step, since every pod reaches every
// other, and a gate has seen it.
type Stop struct {
	// After is the index of the step.
	After int
	// Nodes are those that the cluster has then, and Agents the DaemonSets of the networks that serve their pods.
	Nodes  []string
	Agents []step.Ref
}

// Leg is what is done in one window: the steps from index From, up to To, which is not one of them.
type Leg struct {
	From, To int
	Takes    step.Duration
}

// Legs are what is done in each window; one if the plan has no stopping places.
func (p *Plan) Legs() []Leg {
	var legs []Leg
	for i := range p.Steps {
		if i == 0 || p.Steps[i].Stop {
			legs = append(legs, Leg{From: i})
		}
		last := &legs[len(legs)-1]
		last.To, last.Takes = i+1, last.Takes+p.Steps[i].Estimate
	}
	return legs
}

// Takes is how much of a window must be left when a step begins: its estimate, or that of all steps of a window if
// it is the first of them.
func (p *Plan) Takes(s *step.Step) time.Duration {
	takes := s.Estimate
	if p.Window > 0 && (s.Stop || s.ID == p.Steps[0].ID) {
		first := slices.IndexFunc(p.Steps, func(one step.Step) bool { return one.ID == s.ID })
		for i := first + 1; i < len(p.Steps) && !p.Steps[i].Stop; i++ {
			takes += p.Steps[i].Estimate
		}
	}
	return time.Duration(takes)
}
