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
		l.took[part.Kind] += part.Took
		l.said[part.Kind] += part.Takes()
	}
}

// Takes is how long a part takes, if it differs from the table as the parts of its kind did. The table counts as much
// as parts of lab: a part that took a moment once says little of others.
func (l *Learnt) Takes(p Part) time.Duration {
	takes := p.Takes()
	if l == nil || l.said[p.Kind] == 0 {
		return takes
	}
	return time.Duration(float64(takes) * float64(l.took[p.Kind]+lab) / float64(l.said[p.Kind]+lab))
}

// lab is how much the table counts next to earlier runs.
const lab = 10 * time.Second

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
