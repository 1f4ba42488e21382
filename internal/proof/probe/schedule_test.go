package probe

import (
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(millis int) time.Time { return base.Add(time.Duration(millis) * time.Millisecond) }
	s := newSchedule(base, at(23), 10*time.Millisecond)
	for i, step := range []struct{ due, sent int }{
		{30, 30},
		{40, 41},  // late: the next is not
		{50, 70},  // two intervals late: those missed are sent at once
		{60, 70},  //
		{70, 70},  //
		{80, 101}, // a stall: what was missed is given up
		{110, 110},
		{120, 1000},
		{1010, 1010},
	} {
		if !s.due.Equal(at(step.due)) {
			t.Fatalf("step %d: due at %v, want %d ms", i, s.due.Sub(base), step.due)
		}
		s.advance(at(step.sent))
	}
}
