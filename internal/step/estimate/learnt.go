package estimate

import (
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Learnt is what parts took in earlier runs, next to what the table says of them, by kind. A nil *Learnt knows nothing.
type Learnt struct {
	// Runs are the names of the runs, the newest first.
	Runs       []string
	took, said map[string]time.Duration
}

// Timed is a part of a run, and what it took.
type Timed struct {
	Part
	Took time.Duration
}

// Add takes the parts of a run.
func (l *Learnt) Add(run string, parts []Timed) {
	if l.took == nil {
		l.took, l.said = map[string]time.Duration{}, map[string]time.Duration{}
	}
	l.Runs = append(l.Runs, run)
	for _, part := range parts {
		took, said := max(0, part.Took-part.baked()), part.Takes()-part.baked()
		if took > max(outages*said, lab) {
			continue
		}
		l.took[part.Kind] += took
		l.said[part.Kind] += said
	}
}

// baked is how much of a part does not depend on the cluster: a gate watches for as long as its plan says.
func (p Part) baked() time.Duration {
	if p.Kind == "gate" {
		return time.Duration(p.Bake)
	}
	return 0
}

// Takes is how long a part takes, if it differs from the table as the parts of its kind did, but by no more than most.
// The table counts as much as parts of lab: a part that took a moment once says little of others.
func (l *Learnt) Takes(p Part) time.Duration {
	takes := p.Takes()
	if l == nil || l.said[p.Kind] == 0 {
		return takes
	}
	factor := float64(l.took[p.Kind]+lab) / float64(l.said[p.Kind]+lab)
	return p.baked() + time.Duration(float64(takes-p.baked())*min(max(factor, 1/most), most))
}

const (
	// lab is how much the table counts next to earlier runs.
	lab = 10 * time.Second
	// most is how many times as long, or as short, a part takes at most.
	most = 4.0
	// outages is how many times as long a part took that an outage has held up, which says nothing of the next run.
	outages = 10
)

// Steps is the function Steps with what was learnt.
func (l *Learnt) Steps(steps []step.Step, nodes int, pods map[string][]Pod) {
	for i, parts := range Parts(steps, nodes, pods) {
		var sum time.Duration
		for _, part := range parts {
			sum += l.Takes(part)
		}
		steps[i].Estimate = step.Duration(sum.Round(time.Second / 10))
	}
}
