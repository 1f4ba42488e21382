package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// Actor changes the cluster, and observes it before. An error that only says that the cluster cannot be reached just
// now is, or wraps, ErrUnavailable (or has a method Temporary that returns true): the engine retries. Every other error
// of Do means that the action failed.
type Actor interface {
	// Observe says whether the action's effect is already there, what is there instead, and what would undo it. before
	// is what the first observation of the action saw, by whichever process; it is empty at the first observation.
	Observe(ctx context.Context, action step.Action, before json.RawMessage) (Observation, error)
	// Do does it, and is idempotent. before is what the first observation saw. The answer goes into the journal.
	Do(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error)
	// Holds says whether a condition holds now, and if not, what is missing.
	Holds(context.Context, step.Condition) (bool, string, error)
}

// Observation is the state that was observed before an action.
type Observation struct {
	Done    bool
	Before  json.RawMessage
	Inverse *step.Action
}

// Gate asks for fresh evidence. It calls followDesire between two polls; if followDesire returns an error, Ask ends and
// returns it.
type Gate interface {
	Ask(ctx context.Context, gate step.Gate, followDesire func(context.Context) error) (Verdict, error)
}

// Journal keeps records. Append returns only when all of them are durable; if it fails or is interrupted, it may have
// kept the first few. Appending records again that are already the last ones is no error, and adds only the missing
// ones: that is how the engine retries an append whose answer was lost. A different record under a Seq that is already
// used is an error.
type Journal interface {
	Append(context.Context, ...Record) error
	Records(context.Context) ([]Record, error)
}

// Hold is why the next step of a run must not begin now: Result is ResultOutsideWindow, ResultFrozen,
// ResultWindowEnded or ResultMeasuring, and Cause says until when. The zero Hold lets it begin.
type Hold struct{ Result, Cause string }

// Control reads what the operator asks for, between actions, and while the run waits for a gate or a condition.
type Control interface {
	Desire(context.Context) (v1alpha1.Desire, error)
}

// Fresher is a Control whose answer may be a moment old. After Fresh it reads again.
type Fresher interface{ Fresh() }

// Asker is a Control that knows who asked for the state that Desire returned last; empty if that is not known.
type Asker interface{ AskedBy() string }

// Clock tells the time and sleeps.
type Clock interface {
	Now() time.Time
	// Sleep returns early with the context's error when it ends.
	Sleep(context.Context, time.Duration) error
}
