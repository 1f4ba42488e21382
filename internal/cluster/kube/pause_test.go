package kube

import (
	"context"
	"testing"
	"time"
)

// sleeper notes how long it was to sleep.
type sleeper struct{ last time.Duration }

func (*sleeper) Now() time.Time { return time.Time{} }

func (s *sleeper) Sleep(_ context.Context, d time.Duration) error {
	s.last = d
	return nil
}

// TestPause: one action looks as often as it wants, and 64 together look 50 times a second.
func TestPause(t *testing.T) {
	clock := &sleeper{}
	a := &Actor{Clock: clock}
	for actions, want := range map[int64]time.Duration{1: poll, 12: poll, 64: 64 * time.Second / 50} {
		a.acting.Store(actions)
		if err := a.pause(t.Context(), poll); err != nil || clock.last != want {
			t.Errorf("%d actions: slept for %s (%v), want %s", actions, clock.last, err, want)
		}
	}
}
