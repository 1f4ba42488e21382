package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// callTimeout bounds every single call to the API server.
const callTimeout = 10 * time.Second

// call makes one bounded call, and marks transient errors as engine.ErrUnavailable.
func call[T any](ctx context.Context, what string, f func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	result, err := f(bounded)
	if err == nil {
		return result, nil
	}
	var zero T
	switch {
	case ctx.Err() == nil && passing(err):
		return zero, fmt.Errorf("%s: %w: %w", what, engine.ErrUnavailable, err)
	case ctx.Err() == nil && outage.Refused(err):
		return zero, engine.Refused(fmt.Errorf("%s: %w", what, err))
	}
	return zero, fmt.Errorf("%s: %w", what, err)
}

// passing reports whether an error only means that the API server could not be reached. A call that exceeded
// callTimeout counts: its outcome is unknown.
func passing(err error) bool {
	return outage.Expired(err) || outage.Passes(err)
}

// Patience bounds the retries of calls before a run begins. It is shorter than a run's own limits: nothing has begun,
// and the server's address may be wrong.
var Patience = outage.Limits{Away: time.Minute, Refused: 20 * time.Second}

// patiently retries a call within limits.
func patiently[T any](ctx context.Context, limits outage.Limits,
	f func(context.Context) (T, error)) (result T, err error) {
	err = outage.Retry(ctx, limits, nil, func(ctx context.Context) error {
		result, err = f(ctx)
		return err
	})
	return result, err
}
