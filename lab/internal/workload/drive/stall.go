package drive

import (
	"context"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// stalls detects when the driver itself does not run: its results from that time say nothing about the network.
type stalls struct {
	mu    sync.Mutex
	count tally.Stalls
}

const (
	beat    = 10 * time.Millisecond
	stalled = 200 * time.Millisecond
)

// watch wakes up all the time until ctx ends, and notes when it woke up much too late.
func (s *stalls) watch(ctx context.Context) {
	last := time.Now()
	for wait(ctx, beat) {
		now := time.Now()
		if away := now.Sub(last); away > stalled {
			s.note(last, away)
		}
		last = now
	}
}

func (s *stalls) note(from time.Time, away time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Number++
	s.count.Total += tally.Millis(away)
	if length := tally.Millis(away); length > s.count.Longest {
		s.count.Longest, s.count.LongestAt = length, from
	}
}

func (s *stalls) read() tally.Stalls {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}
