package outage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Bound is how long a refusal, or a plugin's error about an API server that is away, is retried. An API server that was killed is
// back within 20 to 60 seconds, and its authorizer some seconds later.
const Bound = 2 * time.Minute

// The pauses between two tries: short at first, since most outages are short.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Limits are how long Retry tries again: while the API server cannot be asked, and while it refuses.
type Limits struct {
	Away, Refused time.Duration
}

// of is the limit for an error; 0 for one that does not pass by itself.
func (l Limits) of(err error) time.Duration {
	switch {
	case Passes(err):
		return l.Away
	case Refused(err):
		return l.Refused
	}
	return 0
}

// Retry makes a call until it succeeds, fails with an error that does not pass by itself, or its limit is reached; the error then
// says for how long it was tried. note is called with each new error; it may be nil.
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
		if Refused(err) { // a server that was away first has its own time to become warm
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
		if err.Error() != said { // another answer: it is coming back
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

// Lasted adds to an error that did not pass by itself for how long the call was tried.
func Lasted(err error, waited time.Duration) error {
	return fmt.Errorf("%w (tried again for %s)", err, waited.Round(time.Second))
}

// suggested is the pause that the server asks for (Retry-After), within reason.
func suggested(err error) time.Duration {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, 2*lastPause)
}

// Sleep waits for a time; it returns the context's error where that ends first.
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

// Spell measures how long an outage lasts that several calls meet. The zero value is ready to use.
type Spell struct {
	lock  sync.Mutex
	since time.Time
}

// Over is called after a call that succeeded: the outage has ended.
func (s *Spell) Over() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.since = time.Time{}
}

// Lasts is called after a call that failed, and returns how long the outage has lasted.
func (s *Spell) Lasts(now time.Time) time.Duration {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.since.IsZero() {
		s.since = now
	}
	return now.Sub(s.since)
}
