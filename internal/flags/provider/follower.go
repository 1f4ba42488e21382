package provider

import (
	"context"
	"sync"
)

// follower is the life of a provider: a first look at its source, then others until Shutdown.
type follower struct {
	life   sync.Mutex
	cancel context.CancelFunc // nil while nothing is followed
	done   chan struct{}
}

// begin looks once and goes on to follow, also when the first look failed; it does nothing where it has begun.
func (f *follower) begin(ctx context.Context, look func(context.Context) error, follow func(context.Context)) error {
	f.life.Lock()
	if f.cancel != nil {
		f.life.Unlock()
		return nil
	}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	f.cancel, f.done = cancel, done
	f.life.Unlock()

	err := look(ctx)
	go func() { // ends with Shutdown
		defer close(done)
		follow(following)
	}()
	return err
}

// Shutdown stops following the source; what was read last stays in force.
func (f *follower) Shutdown() { _ = f.ShutdownWithContext(context.Background()) }

// ShutdownWithContext is Shutdown with a bound.
func (f *follower) ShutdownWithContext(ctx context.Context) error {
	f.life.Lock()
	cancel, done := f.cancel, f.done
	f.cancel = nil
	f.life.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
