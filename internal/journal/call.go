package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/internal/engine"
	"github.com/theseus-cni/theseus/internal/outage"
)

// callTimeout bounds every single call to the API server.
const callTimeout = 10 * time.Second

// call makes one bounded call, and marks the errors that pass by themselves as engine.ErrUnavailable.
func call[T any](ctx context.Context, what string, f func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	result, err := f(bounded)
	if err == nil {
		return result, nil
	}
	var zero T
	if ctx.Err() == nil && passing(err) {
		return zero, fmt.Errorf("%s: %w: %w", what, engine.ErrUnavailable, err)
	}
	return zero, fmt.Errorf("%s: %w", what, err)
}

// passing says whether an error only means that the API server could not be asked. An attempt that ran into
// its bound counts: its outcome is not known.
func passing(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || outage.Passes(err)
}
