package provider

import (
	"context"
	"sync"
)

// follower is the life cycle of a provider: it loads its source once, then follows it until Shutdown.
type follower struct {
	life   sync.Mutex
	cancel context.CancelFunc // nil while it does not follow a source
	done   chan struct{}
}

// begin loads once and then follows the source, even if the first load failed. It does nothing if it has already begun.
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

// Shutdown stops following the source; the last set stays in effect.
func (f *follower) Shutdown() { _ = f.ShutdownWithContext(context.Background()) }

// ShutdownWithContext is Shutdown with a deadline.
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
