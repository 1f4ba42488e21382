package probe

import (
	"sync"
	"time"
)

const (
	// beatEvery is how often a runner that runs beats, at least.
	beatEvery = 100 * time.Millisecond
	// minStall is how late a beat must be to count as a stall. What is shorter is little beside any timeout.
	minStall = 200 * time.Millisecond
	// maxStalls is how many stalls are remembered, the latest: more than fit into the life of a probe.
	maxStalls = 64
)

// pulse knows from beats that came late when this process did not run. Time in which it did not run is none
// that an answer had: it may have come and lie in a socket's buffer. Its methods may be called concurrently.
type pulse struct {
	mu     sync.Mutex
	last   time.Time // beat
	stalls []span
}

type span struct{ from, to time.Time }

func newPulse(now time.Time) *pulse { return &pulse{last: now} }

// beat notes that the process runs now.
func (p *pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look(now)
	p.last = now
}

// awake is the time between two moments in which the process ran. Whoever asks first after a stall may come
// before the beat that is overdue; it learns of the stall all the same.
func (p *pulse) awake(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look(to)
	ran := to.Sub(from)
	for _, stall := range p.stalls {
		begin, end := stall.from, stall.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if end.After(begin) {
			ran -= end.Sub(begin)
		}
	}
	return ran
}

// look notes a stall when the next beat is overdue, or the one at hand as longer. The lock is held.
func (p *pulse) look(now time.Time) {
	due := p.last.Add(beatEvery)
	if now.Sub(due) < minStall {
		return
	}
	n := len(p.stalls)
	if n == 0 || !p.stalls[n-1].from.Equal(due) {
		if n == maxStalls {
			p.stalls = append(p.stalls[:0], p.stalls[1:]...)
		}
		p.stalls = append(p.stalls, span{due, now})
		return
	}
	if now.After(p.stalls[n-1].to) {
		p.stalls[n-1].to = now
	}
}
