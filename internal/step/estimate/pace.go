package estimate

import (
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Pace is what steps took in a run, beside what was said of them. The zero value knows nothing.
type Pace struct {
	took, said map[string]time.Duration // by what steps are alike in
}

// Learn takes what a step took.
func (p *Pace) Learn(s *step.Step, took time.Duration) {
	if p.took == nil {
		p.took, p.said = map[string]time.Duration{}, map[string]time.Duration{}
	}
	p.took[alike(s)] += took
	p.said[alike(s)] += time.Duration(s.Estimate)
}

// Takes is how long a step takes, if it differs from its estimate as those did that do the same on other nodes.
func (p *Pace) Takes(s *step.Step) time.Duration {
	estimate := time.Duration(s.Estimate)
	if said := p.said[alike(s)]; said > 0 {
		return time.Duration(float64(estimate) * float64(p.took[alike(s)]) / float64(said))
	}
	return estimate
}

// alike is what a step's ID has in common with those of the steps that do the same on other nodes: "wave-2/node-7/move" is
// like "wave-1/node-1/move".
func alike(s *step.Step) string {
	if s.Wave == "" {
		return s.ID
	}
	parts := slices.DeleteFunc(strings.Split(s.ID, "/"), func(part string) bool { return part == s.Wave || part == s.Node })
	if strings.HasPrefix(s.ID, s.Wave+"/") && len(parts) > 1 {
		parts = parts[1:] // the first of several nodes
	}
	return strings.TrimRight(strings.Join(parts, "/"), "0123456789")
}
