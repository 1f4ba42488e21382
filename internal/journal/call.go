package journal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/theseus-cni/theseus/internal/engine"
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
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		errors.As(err, &network)
}
