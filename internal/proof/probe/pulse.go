package probe

import (
	"sync"
	"time"
)

const (
	// beatEvery is the longest time between two beats of a runner that is not stalled.
	beatEvery = 100 * time.Millisecond
	// minStall is how late a beat must be to count as a stall. Shorter delays are small compared with any timeout.
	minStall = 200 * time.Millisecond
	// maxStalls is how many of the latest stalls are kept: more than fit into the lifetime of a probe.
	maxStalls = 64
)

// pulse detects, from late beats, when this process was stalled. That time does not count as time for an answer: the
// answer may have arrived and be in a socket's buffer. Its methods may be called concurrently.
type pulse struct {
	mu     sync.Mutex
	last   time.Time // beat
	stalls []span
}

type span struct{ from, to time.Time }

func newPulse(now time.Time) *pulse { return &pulse{last: now} }

// beat records that the process runs now.
func (p *pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look(now)
	p.last = now
}

// awake is the time between two moments in which the process ran. The first caller after a stall may come before the
// overdue beat; awake accounts for the stall all the same.
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

// look records a stall if the next beat is overdue, or extends the current one. The lock is held.
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
