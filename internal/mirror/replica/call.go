package replica

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

const (
	callTimeout = 30 * time.Second
	// attempts, with pauses that double from firstPause on, span some 25 s. The client itself already waits out
	// what the server asks for with Retry-After, ten times.
	attempts   = 8
	firstPause = 200 * time.Millisecond
)

// retried calls until it succeeds, for as long as the error is one that passes by itself.
func retried[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		result, err := call(bounded)
		cancel()
		if err == nil || attempt == attempts || ctx.Err() != nil || !passes(err) {
			return result, err
		}
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
		if wait(ctx, pause); ctx.Err() != nil {
			return result, ctx.Err()
		}
		pause *= 2
	}
}

// wait waits, but not beyond the end of the context.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// passes says whether it makes sense to try again. A webhook that cannot be called is a matter of the mirror that
// may take minutes, so it is not waited for.
func passes(err error) bool {
	return outage.Passes(err) && !strings.Contains(err.Error(), "failed calling webhook")
}
