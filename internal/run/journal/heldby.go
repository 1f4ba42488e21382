package journal

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// HeldBy says which process runs a migration, from the lock, without changing it; nil if none does, or if the holder
// does something else. A holder on another machine that ended without releasing the lock is still named: only watching
// the lock would show that.
func HeldBy(ctx context.Context, leases coordination.LeaseInterface) (*HeldError, error) {
	seen, err := (&Lease{leases: leases}).look(ctx)
	return running(seen), err
}

// running is the holder of a lock if it runs a migration; nil if none does.
func running(seen *coordinationv1.Lease) *HeldError {
	if seen == nil || holderOf(seen) == "" || gone(seen.Annotations[annotationProcess]) || !held(seen).Runs() {
		return nil
	}
	return held(seen)
}

// Holding is HeldBy for a caller that can wait some seconds for the truth. If the last renewal of the lock is not
// recent by this machine's clock, Holding calls say and watches the lock until it is renewed: a holder that does not
// renew it for the duration of the lease has ended, and is not returned.
func Holding(ctx context.Context, leases coordination.LeaseInterface, say func(string)) (*HeldError, error) {
	l := &Lease{leases: leases}
	first, err := l.look(ctx)
	holder := running(first)
	if err != nil || holder == nil || first.Spec.RenewTime == nil {
		return holder, err
	}
	since, lasts := time.Now(), durationOf(first)
	if ago := since.Sub(first.Spec.RenewTime.Time); ago.Abs() <= lasts {
		return holder, nil
	}
	say(fmt.Sprintf("%s has not renewed its lock lately: watching the lock for %s", holder.Holder, lasts))
	for {
		seen, err := l.look(ctx)
		switch {
		case err != nil:
			return nil, err
		case seen == nil || !alike(first, seen):
			return running(seen), nil
		case time.Since(since) >= lasts:
			return nil, nil
		}
		if err := outage.Sleep(ctx, watchEvery); err != nil {
			return nil, err
		}
	}
}

// HeldUntil is HeldBy for a migration that ended at a time, or has not ended if that is zero. A process that took the
// lock after the end runs another migration, and is not returned.
func HeldUntil(ctx context.Context, leases coordination.LeaseInterface, end time.Time) (*HeldError, error) {
	holder, err := HeldBy(ctx, leases)
	return holder.until(end), err
}

// HoldingUntil is Holding for such a migration. One that has ended is not watched for.
func HoldingUntil(ctx context.Context, leases coordination.LeaseInterface, end time.Time,
	say func(string)) (*HeldError, error) {
	if !end.IsZero() {
		return HeldUntil(ctx, leases, end)
	}
	return Holding(ctx, leases, say)
}

func (e *HeldError) until(end time.Time) *HeldError {
	if e != nil && !end.IsZero() && e.Since.After(end) {
		return nil
	}
	return e
}
