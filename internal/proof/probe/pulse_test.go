package probe

import (
	"testing"
	"time"
)

func TestPulse(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(millis int) time.Time { return base.Add(time.Duration(millis) * time.Millisecond) }
	p := newPulse(base)
	for _, step := range []struct{ beat, from, to, awake int }{
		{100, 0, 100, 100},
		{250, 0, 250, 250},          // late, and no stall
		{-1, 200, 2350, 150},        // asked before the overdue beat: it was due at 350
		{2400, 200, 2400, 150},      // the stall ends with the beat
		{2500, 200, 2500, 250},      // and time goes on
		{-1, 1000, 2000, 0},         // within it
		{-1, 300, 1000, 50},         // begins before it
		{-1, 2000, 2500, 100},       // ends after it
		{-1, 2450, 2500, 50},        // after it
		{5000, 300, 5000, 50 + 200}, // a second one, due at 2600: awake 300-350, 2400-2600
	} {
		if step.beat >= 0 {
			p.beat(at(step.beat))
		}
		if got := p.awake(at(step.from), at(step.to)); got != time.Duration(step.awake)*time.Millisecond {
			t.Errorf("awake %v from %d to %d, want %d ms", got, step.from, step.to, step.awake)
		}
	}
}

// TestPulseIsBounded: the latest stalls are remembered.
func TestPulseIsBounded(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := newPulse(base)
	last := base
	for i := range 3 * maxStalls {
		last = base.Add(time.Duration(i+1) * time.Second)
		p.beat(last)
	}
	if len(p.stalls) != maxStalls {
		t.Errorf("%d stalls remembered", len(p.stalls))
	}
	if got := p.awake(last.Add(-time.Second), last); got != beatEvery {
		t.Errorf("awake %v of the last second", got)
	}
}
