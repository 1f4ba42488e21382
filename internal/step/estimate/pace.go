package estimate

import (
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Pace is what steps took in a run, next to what was said of them. The zero value knows nothing.
type Pace struct {
	took, said map[string]time.Duration // by what steps are alike in
}

// Learn takes what a step took.
func (p *Pace) Learn(s *step.Step, took time.Duration) {
	if p.took == nil {
		p.took, p.said = map[string]time.Duration{}, map[string]time.Duration{}
	}
	p.took[s.Alike()] += took
	p.said[s.Alike()] += time.Duration(s.Estimate)
}

// Takes is how long a step takes, if it differs from its estimate as those did that do the same on other nodes.
func (p *Pace) Takes(s *step.Step) time.Duration {
	estimate := time.Duration(s.Estimate)
	if said := p.said[s.Alike()]; said > 0 {
		return time.Duration(float64(estimate) * float64(p.took[s.Alike()]) / float64(said))
	}
	return estimate
}
