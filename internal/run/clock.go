package run

import (
	"context"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// Together returns a function that makes calls concurrently, a number at a time, and returns when all have returned.
func Together(most int) func(calls []func()) {
	return func(calls []func()) {
		slots := make(chan struct{}, most)
		var running sync.WaitGroup
		for _, call := range calls {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				call()
			})
		}
		running.Wait()
	}
}

// Clock is the real time.
type Clock struct{}

func (Clock) Now() time.Time { return time.Now() }

func (Clock) Sleep(ctx context.Context, d time.Duration) error { return outage.Sleep(ctx, d) }
