package probe

import "time"

// coarse is the longest that a new path waits for its first probe.
const coarse = 200 * time.Millisecond

// schedule is the absolute times at which a path's probes are due. Multiples of the interval (or of coarse)
// since a common base make the paths of a runner due together, so that one wake-up serves them all.
type schedule struct {
	interval time.Duration
	due      time.Time
}

// newSchedule begins at the first multiple of the interval since base that is after now, or of coarse if
// the interval is longer.
func newSchedule(base, now time.Time, interval time.Duration) schedule {
	grid := min(interval, coarse)
	passed := now.Sub(base) / grid
	return schedule{interval, base.Add((passed + 1) * grid)}
}

// advance moves on from a probe that was due and sent at the given times. If it was more than two
// intervals late, the missed sends are skipped (the tracker records the stall).
func (s *schedule) advance(sent time.Time) {
	late := sent.Sub(s.due)
	if late > 2*s.interval {
		s.due = s.due.Add((late/s.interval + 1) * s.interval)
		return
	}
	s.due = s.due.Add(s.interval)
}
