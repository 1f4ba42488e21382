package journal

import (
	"context"
	"time"

	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// HeldBy says which process runs a migration, from the lock, without changing it; nil if none does, or if the holder
// does something else. A holder on another machine that ended without releasing the lock is still named: only watching
// the lock would show that.
func HeldBy(ctx context.Context, leases coordination.LeaseInterface) (*HeldError, error) {
	seen, err := (&Lease{leases: leases}).look(ctx)
	if err != nil || seen == nil || holderOf(seen) == "" || gone(seen.Annotations[annotationProcess]) ||
		!held(seen).Runs() {
		return nil, err
	}
	return held(seen), nil
}

// HeldUntil is HeldBy for a migration that ended at a time, or has not ended if that is zero. A process that took the
// lock after the end runs another migration, and is not returned.
func HeldUntil(ctx context.Context, leases coordination.LeaseInterface, end time.Time) (*HeldError, error) {
	holder, err := HeldBy(ctx, leases)
	if holder != nil && !end.IsZero() && holder.Since.After(end) {
		return nil, err
	}
	return holder, err
}
