package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable says that the cluster, or the journal, cannot be reached just now. The engine retries such a call for
// at most Options.Patience.
var ErrUnavailable = errors.New("unavailable")

// ErrRefused says that the API server refused a call, perhaps because it has just started and has not read its roles
// yet. A missing right gives the same error, so the engine retries the call for Options.Settling, and then takes it as
// failed.
var ErrRefused = errors.New("refused")

// Refused marks an error as ErrRefused and leaves its text as it is.
func Refused(err error) error { return refused{err} }

type refused struct{ error }

func (r refused) Unwrap() []error { return []error{r.error, ErrRefused} }

// WithHint gives an error the line that tells a person what to do about it. HintOf finds it again.
func WithHint(err error, hint string) error { return &hinted{err, hint} }

// HintOf is the outermost hint of an error, or "".
func HintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }
func (h *hinted) Hint() string  { return h.hint }

// failure is a step that cannot continue: the policy decides between undoing it and asking a person.
type failure struct {
	step  string
	cause string
	hint  string // of the underlying error, or ""
}

func (f *failure) Error() string { return f.cause }

// takenBack is a step that failed and was undone alone.
type takenBack struct{ cause string }

func (t *takenBack) Error() string {
	return t.cause + "; that step was undone, and no other step was"
}

// gaveUp is an outage that lasted longer than the run's patience.
type gaveUp struct {
	what   string
	waited time.Duration
	err    error
}

func (g *gaveUp) Error() string {
	return fmt.Sprintf("%s: gave up after %s: %v", g.what, g.waited.Round(time.Second), g.err)
}
func (g *gaveUp) Unwrap() error { return g.err }

// refusedForGood is a refusal that lasted too long to come from a server that has just started.
type refusedForGood struct {
	waited time.Duration
	err    error
}

func (r *refusedForGood) Error() string {
	return fmt.Sprintf("%v (retried for %s: the permission is missing)", r.err, r.waited.Round(time.Second))
}
func (r *refusedForGood) Unwrap() error { return r.err }

// errInterrupted, errPaused and errTurn end a walk for reasons that are not faults: the context ended, a
// pause was written, the direction changed.
var (
	errInterrupted = errors.New("interrupted")
	errPaused      = errors.New("paused")
	errTurn        = errors.New("turned")
)

// transient reports whether an error may go away by itself.
func transient(err error) bool {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrRefused) {
		return true
	}
	if errors.Is(err, context.Canceled) {
		return false
	}
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}
