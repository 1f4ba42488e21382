package adoption

import (
	"context"
	"errors"
	"fmt"

	"github.com/theseus-cni/theseus/internal/step"
)

// Hands do the parts of a transaction on a node. Each is idempotent: done again after it was interrupted
// anywhere, it leaves what it would have left the first time.
type Hands interface {
	// See looks at the pod.
	See(*Record) (Seen, error)
	// Save writes the record durably; Forget removes it, and the record before it counts again.
	Save(*Record) error
	Forget(*Record) error
	// Pin holds the traffic of both sides on the old interface whatever routes appear, and gives that another
	// name. Unpin takes it back.
	Pin(context.Context, *Record) error
	Unpin(context.Context, *Record) error
	// Add asks the target's plugin and fills in New. Remove takes back whatever of it there is.
	Add(context.Context, *Record) error
	Remove(context.Context, *Record) error
	// Wait waits until the target lets the pod's packets through.
	Wait(context.Context, *Record) error
	// Flip changes the traffic over, and Unflip back.
	Flip(context.Context, *Record) error
	Unflip(context.Context, *Record) error
	// Part makes everybody send to the new interface, then removes the old one and what held the traffic.
	Part(context.Context, *Record) error
	// Release lets the source, or for a pod that is gone the target too, give back what it holds.
	Release(context.Context, *Record, Side) error
	// Mark notes the time at which a part ended.
	Mark(*Record, string)
}

// Seen is what a look at a pod says.
type Seen struct {
	// Alive is false when the sandbox or its network namespace is gone.
	Alive bool
	// Old and New say whether each interface is there.
	Old, New bool
}

// Course is how to handle an interrupted transaction.
type Course int

// The courses.
const (
	// Finished: there is nothing to do.
	Finished Course = iota
	// Back: take back what was done; the pod is on its source.
	Back
	// Onward: finish; the pod is on its target.
	Onward
	// Bury: the pod is gone; let both networks give back what they hold.
	Bury
)

// Decide says how to handle a transaction in a phase.
//
// Before Flipped was written the old interface is whole, so going back is sure, whatever of the flip was done.
// After it, going on is sure as long as the new one is there. If another program has removed that one, the pod still
// has the other.
func Decide(phase Phase, seen Seen) Course {
	switch {
	case !seen.Alive:
		return Bury
	case phase == Moved:
		return Finished
	case phase == Flipped && (seen.New || !seen.Old):
		return Onward
	}
	return Back
}

// Move carries a transaction out, from a record in phase Pinning that nothing has been done about yet. When a
// part fails before the flip is recorded, all is taken back; the error says why. The state is where the pod is.
func Move(ctx context.Context, hands Hands, record *Record) (step.AdoptState, error) {
	forward := []struct {
		phase Phase
		do    func(context.Context, *Record) error
	}{
		{Pinning, hands.Pin}, {Adding, hands.Add}, {Waiting, hands.Wait}, {Flip, hands.Flip},
	}
	for _, part := range forward {
		record.Phase = part.phase
		err := hands.Save(record)
		if err == nil {
			err = part.do(ctx, record)
		}
		if err != nil {
			return back(ctx, hands, record, fmt.Errorf("%s: %w", part.phase, err))
		}
		hands.Mark(record, string(part.phase))
	}
	record.Phase = Flipped
	if err := hands.Save(record); err != nil {
		record.Phase = Flip // what is on disk says so too
		return back(ctx, hands, record, fmt.Errorf("%s: %w", Flipped, err))
	}
	return finish(ctx, hands, record)
}

// Resume ends what was interrupted.
func Resume(ctx context.Context, hands Hands, record *Record) (step.AdoptState, error) {
	seen, err := hands.See(record)
	if err != nil {
		return step.AdoptStuck, err
	}
	switch Decide(record.Phase, seen) {
	case Finished:
		return step.AdoptMoved, nil
	case Onward:
		return finish(ctx, hands, record)
	case Bury:
		return bury(ctx, hands, record)
	}
	return back(ctx, hands, record, errors.New("it was interrupted"))
}

// finish goes on from Flipped.
func finish(ctx context.Context, hands Hands, record *Record) (step.AdoptState, error) {
	if err := hands.Part(ctx, record); err != nil {
		return ended(ctx, hands, record, fmt.Errorf("part: %w", err))
	}
	if record.Release {
		if err := hands.Release(ctx, record, record.From); err != nil {
			return ended(ctx, hands, record, fmt.Errorf("release: %w", err))
		}
	}
	hands.Mark(record, string(Moved))
	record.Phase = Moved
	if record.Release {
		record.Before = nil
		return step.AdoptMoved, hands.Forget(record)
	}
	if err := hands.Save(record); err != nil {
		return step.AdoptStuck, err
	}
	return step.AdoptMoved, nil
}

// back takes a transaction back, for a reason. Taking back goes on when the caller gives up.
func back(ctx context.Context, hands Hands, record *Record, reason error) (step.AdoptState, error) {
	ctx = context.WithoutCancel(ctx)
	if seen, err := hands.See(record); err == nil && !seen.Alive {
		return bury(ctx, hands, record)
	}
	for _, undo := range []func(context.Context, *Record) error{hands.Unflip, hands.Remove, hands.Unpin} {
		if err := undo(ctx, record); err != nil {
			return ended(ctx, hands, record, fmt.Errorf("%w; taking back: %w", reason, err))
		}
	}
	if err := hands.Forget(record); err != nil {
		return step.AdoptStuck, errors.Join(reason, err)
	}
	return step.AdoptUndone, reason
}

// ended says what a failure on the way means: a pod that died meanwhile is buried, any other is tried again.
func ended(ctx context.Context, hands Hands, record *Record, cause error) (step.AdoptState, error) {
	if seen, err := hands.See(record); err == nil && !seen.Alive {
		return bury(context.WithoutCancel(ctx), hands, record)
	}
	return step.AdoptStuck, cause
}

// bury lets both networks give back what they hold for a pod that is gone.
func bury(ctx context.Context, hands Hands, record *Record) (step.AdoptState, error) {
	if err := hands.Unpin(ctx, record); err != nil {
		return step.AdoptStuck, err
	}
	err := errors.Join(hands.Release(ctx, record, record.To), hands.Release(ctx, record, record.From))
	if err != nil {
		return step.AdoptStuck, err
	}
	record.Before = nil
	return step.AdoptGone, hands.Forget(record)
}
