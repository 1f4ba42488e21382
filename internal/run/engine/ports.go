package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// Actor changes the world, and looks before it does. An error that only says that the world cannot be
// reached just now is, or wraps, ErrUnavailable (or has a method Temporary that says true): it is waited
// out. Every other error of Do means that the action failed.
type Actor interface {
	// Observe says whether the action's effect is already there, what is there instead, and what would take
	// it back. before is what the first look at it saw, by whichever process; nothing at the first look.
	Observe(ctx context.Context, action step.Action, before json.RawMessage) (Observation, error)
	// Do does it. Doing it twice is the same as doing it once. before is what the first look saw. Its answer goes into the journal.
	Do(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error)
	// Holds says whether a condition holds now, and if not, what is missing.
	Holds(context.Context, step.Condition) (bool, string, error)
}

// Observation is what was seen before an action.
type Observation struct {
	Done    bool
	Before  json.RawMessage
	Inverse *step.Action
}

// Gate asks for fresh evidence. It calls heed between two looks; what heed returns, if not nil, ends the
// question and is returned.
type Gate interface {
	Ask(ctx context.Context, gate step.Gate, heed func(context.Context) error) (Verdict, error)
}

// Journal keeps records. Append returns only when all of them are durable; one that fails or is cut off may have kept
// the first few. Appending records of which the first ones, or all, are the last ones already is no error and adds only
// the others: that is how an append whose answer was lost is retried. A different record under a Seq that is taken is an
// error.
type Journal interface {
	Append(context.Context, ...Record) error
	Records(context.Context) ([]Record, error)
}

// Control tells what the operator asks for; it is read between actions, and while a gate or a condition is waited
// for.
type Control interface {
	Desire(context.Context) (v1alpha1.Desire, error)
}

// Clock tells the time and waits.
type Clock interface {
	Now() time.Time
	// Sleep returns early with the context's error when it ends.
	Sleep(context.Context, time.Duration) error
}
