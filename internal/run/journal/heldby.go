package journal

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// Holding says which process runs a migration, from the lock, without changing it; nil if none does, or if the holder
// does something else. end is when the migration ended, or zero: a process that took the lock later runs another one.
// If the last renewal of the lock is not recent by this machine's clock, Holding calls say and watches the lock until
// it is renewed: a holder that does not renew it for the duration of the lease has ended, and is not returned. A short
// outage of the API server does not end the watching.
func Holding(ctx context.Context, leases coordination.LeaseInterface, end time.Time,
	say func(string)) (*HeldError, error) {
	var w Watch
	var begun time.Time // the watching; zero before that
	for {
		holder, err := w.Look(ctx, leases, end)
		switch {
		case err != nil && !begun.IsZero() && outage.Passes(err) && time.Since(begun) < 2*leaseDuration:
		case err != nil || holder == nil || !holder.Silent:
			return holder, err
		case begun.IsZero():
			begun = time.Now()
			say(fmt.Sprintf("%s; watching the lock for %s", holder, leaseDuration))
		}
		if err := outage.Sleep(ctx, watchEvery); err != nil {
			return nil, err
		}
	}
}

// Watch is Holding for a caller that looks every few seconds anyway, and does not wait.
type Watch struct {
	// Died is true if the process that ran the migration ended without releasing the lock, as of the last look.
	Died bool

	lock  sight
	alive bool // the lock was renewed since the first look
}

// Look says which process runs a migration, as Holding does. While it is not known whether that process is alive, it is
// returned as a silent one.
func (w *Watch) Look(ctx context.Context, leases coordination.LeaseInterface, end time.Time) (*HeldError, error) {
	seen, err := (&Lease{leases: leases}).look(ctx)
	if err != nil {
		w.lock.missed()
		return nil, err
	}
	free, renewed := w.lock.add(seen)
	w.Died, w.alive = false, !free && (w.alive || renewed)
	if seen == nil || holderOf(seen) == "" {
		return nil, nil
	}
	holder := held(seen)
	if !holder.Runs() || !end.IsZero() && holder.Since.After(end) {
		return nil, nil
	}
	if w.Died = free; free {
		return nil, nil
	}
	at := seen.Spec.RenewTime
	holder.Silent = !w.alive && (at == nil || time.Since(at.Time).Abs() > durationOf(seen))
	return holder, nil
}

// sight is what a process knows of a lock that it watches. Clocks of different machines are not compared.
type sight struct {
	last    *coordinationv1.Lease
	looked  time.Time
	watched time.Duration // since it was found so
}

// add adds what a look has found. free is true if no living process holds the lock, renewed if the lock was renewed
// since the look before. Of a time between two looks, only a part counts: the caller may not have looked for long.
func (s *sight) add(seen *coordinationv1.Lease) (free, renewed bool) {
	if seen == nil || holderOf(seen) == "" || gone(seen.Annotations[annotationProcess]) {
		return true, false
	}
	now := time.Now()
	if s.last != nil && alike(s.last, seen) {
		s.watched += min(now.Sub(s.looked), leaseDuration/2)
		s.looked = now
		return s.watched >= durationOf(seen), false
	}
	renewed = s.last != nil
	*s = sight{last: seen, looked: now}
	return false, renewed
}

// missed is called after a look that failed. In an outage no holder can renew the lock, so the watching begins again.
func (s *sight) missed() { s.watched, s.looked = 0, time.Now() }
