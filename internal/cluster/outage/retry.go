package outage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Bound is how long to retry a refusal, or a plugin's error about an unavailable API server. An API server that was
// killed is back within 20 to 60 seconds, and its authorizer some seconds later.
const Bound = 2 * time.Minute

// The backoff between retries: short at first, because most outages are short.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Limits are how long Retry retries: while the API server is unavailable, and while it refuses.
type Limits struct {
	Away, Refused time.Duration
	// Late also retries calls that have exceeded a deadline of their own: a busy API server answers later. Such a call
	// may have been carried out, so Late is for calls that only read.
	Late bool
}

// Reading returns the limits for calls that only read.
func (l Limits) Reading() Limits {
	l.Late = true
	return l
}

// of returns the limit for an error; 0 for an error that is not transient.
func (l Limits) of(err error) time.Duration {
	switch {
	case Passes(err), l.Late && Expired(err):
		return l.Away
	case Refused(err):
		return l.Refused
	}
	return 0
}

// Retry repeats a call until it succeeds, fails with an error that is not transient, or reaches its limit; then the
// error says for how long it was retried. note is called with each new error; it may be nil.
func Retry(ctx context.Context, limits Limits, note func(error), call func(context.Context) error) error {
	begun, refused := time.Now(), time.Time{}
	said := ""
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := call(ctx)
		limit := limits.of(err)
		if err == nil || limit == 0 || ctx.Err() != nil {
			return err
		}
		since := begun
		if Refused(err) { // after an outage, the limit for refusals starts again
			if refused.IsZero() {
				refused = time.Now()
			}
			since = refused
		} else {
			refused = time.Time{}
		}
		if waited := time.Since(since); waited+pause > limit {
			return Lasted(err, waited)
		}
		if err.Error() != said { // the error changed: the server is coming back
			said, pause = err.Error(), firstPause
			if note != nil {
				note(err)
			}
		}
		if Sleep(ctx, max(pause, suggested(err))) != nil {
			return err
		}
	}
}

// Lasted adds to an error for how long the call was retried.
func Lasted(err error, waited time.Duration) error {
	return fmt.Errorf("%w (tried again for %s)", err, waited.Round(time.Second))
}

// suggested returns the delay that the server requested (Retry-After), within bounds.
func suggested(err error) time.Duration {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, 2*lastPause)
}

// Sleep waits; it returns the context's error if the context ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Spell measures the length of an outage over several calls. The zero value is ready to use.
type Spell struct {
	lock  sync.Mutex
	since time.Time
}

// Over must be called after a successful call: the outage has ended.
func (s *Spell) Over() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.since = time.Time{}
}

// Lasts must be called after a failed call; it returns how long the outage has lasted.
func (s *Spell) Lasts(now time.Time) time.Duration {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.since.IsZero() {
		s.since = now
	}
	return now.Sub(s.since)
}
