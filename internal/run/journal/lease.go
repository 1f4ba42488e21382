package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// annotationProcess names the holder's process, so that the same machine can see that the process has ended.
	annotationProcess = "theseus.dev/process"
	// A holder renews every renewEvery. A holder that was watched for leaseDuration without renewing has ended.
	leaseDuration = 15 * time.Second
	renewEvery    = 4 * time.Second
	watchEvery    = time.Second
	// looksFor is how long Acquire waits for processes that only look, which have the lock for some seconds.
	looksFor = time.Minute
)

// HeldError says that another process holds the lock.
type HeldError struct {
	Holder string
	Since  time.Time
	// Silent is true if it did not renew the lock lately, and is not known to be alive (Watch).
	Silent bool
}

func (e *HeldError) Error() string {
	if e.Silent {
		return e.Holder + " has not renewed its lock on this cluster lately, and may have ended"
	}
	who, does := e.Holder, "is running a migration on"
	if name, ok := strings.CutSuffix(e.Holder, looks); ok {
		who, does = name, "is inspecting the nodes of"
	} else if name, ok := strings.CutSuffix(e.Holder, marks); ok {
		who, does = name, "is looking at a guard on"
	} else if name, ok := strings.CutSuffix(e.Holder, benches); ok {
		who, does = name, "is benchmarking the network of"
	}
	return fmt.Sprintf("%s %s this cluster, since %s", who, does, e.Since.UTC().Format(time.RFC3339))
}

// Hint says what to do about it.
func (e *HeldError) Hint() string {
	if e.Looks() {
		return "wait until it ends, then retry"
	}
	if e.benches() {
		return "wait until it ends, which may take some minutes, or stop that process; then retry"
	}
	if strings.HasPrefix(e.Holder, manifest.ControllerName+"@") {
		return "`theseus watch` shows how far it is; wait for it, or take it over with `theseus resume`"
	}
	return "`theseus status` shows how far it is; wait for it, or stop that process and retry"
}

// Runs is true if the holder runs a migration, as far as its name says. Another one cannot be asked for anything.
func (e *HeldError) Runs() bool { return !e.Looks() && !e.benches() }

func (e *HeldError) benches() bool { return strings.HasSuffix(e.Holder, benches) }

// Looks is true if the holder runs no migration, and has the lock only for the seconds of a look.
func (e *HeldError) Looks() bool {
	return strings.HasSuffix(e.Holder, looks) || strings.HasSuffix(e.Holder, marks)
}

// Lease is the lock on a cluster: while a process holds it, no other one runs a migration there. An unavailable API
// server does not cost the lock, since meanwhile no other process can take it; Check keeps a process that was
// disconnected from acting on a lock that it may have lost.
type Lease struct {
	leases coordination.LeaseInterface
	holder string
	lose   context.CancelCauseFunc
	stop   context.CancelFunc
	ended  chan struct{} // closed when the renewal has stopped

	mu      sync.Mutex
	current *coordinationv1.Lease
	renewed moment
	lost    error
	boot    func() time.Duration
	tried   []metav1.MicroTime // when this process wrote, or tried to write, itself into the lock
}

// Acquire takes the lock. If another process holds it, Acquire watches until that holder renews, and returns a
// *HeldError; or until the holder has not renewed for the duration of the lease; or takes it at once if the holder is a
// process of this machine that has ended. For holders that only look (HeldError.Looks), it waits up to a minute. Clocks
// of different machines are never compared. The returned context ends, with its cause, when the lock is lost. The lock
// is renewed until Release, even after the end of ctx.
func Acquire(ctx context.Context, leases coordination.LeaseInterface, holder string) (*Lease, context.Context, error) {
	return acquireWithin(ctx, leases, holder, Patience, looksFor)
}

// TryAcquire is Acquire for a process that can do without the lock: it neither waits for holders that only look, nor
// retries when the API server refuses.
func TryAcquire(ctx context.Context, leases coordination.LeaseInterface, holder string) (*Lease,
	context.Context, error) {
	return acquireWithin(ctx, leases, holder, outage.Limits{Away: Patience.Away}, 0)
}

func acquireWithin(ctx context.Context, leases coordination.LeaseInterface, holder string, patience outage.Limits,
	wait time.Duration) (*Lease, context.Context, error) {
	l := &Lease{leases: leases, holder: holder, ended: make(chan struct{}), boot: sinceBoot}
	begun := time.Now()
	var lock sight
	for {
		seen, err := patiently(ctx, patience.Reading(), func(ctx context.Context) (*coordinationv1.Lease, error) {
			seen, err := l.look(ctx)
			if err != nil {
				lock.missed()
			}
			return seen, err
		})
		if err != nil {
			return nil, nil, err
		}
		switch free, renewed := lock.add(seen); {
		case free || l.mine(seen):
			_, err = patiently(ctx, patience, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, l.take(ctx, seen)
			})
			if err == nil {
				return l, l.hold(ctx), nil
			}
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				return nil, nil, err
			}
		case renewed && (!held(seen).Looks() || time.Since(begun) >= wait):
			return nil, nil, held(seen)
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(watchEvery):
		}
	}
}

// Check returns nil if the lock was certainly held a moment ago. It renews the lock first if that is not known.
func (l *Lease) Check(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return l.lost
	}
	if l.ago(l.renewed) < leaseDuration/2 {
		return nil
	}
	return l.renew(ctx)
}

// Epoch is how often the lock had changed hands when this process took it. It grows with every holder.
func (l *Lease) Epoch() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return epochOf(l.current)
}

// Exceed raises the epoch above that of an earlier holder: after the lock was deleted, it counts from 1 again.
func (l *Lease) Exceed(ctx context.Context, epoch int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil || epochOf(l.current) > epoch {
		return l.lost
	}
	next := l.current.DeepCopy()
	next.Spec.LeaseTransitions = new(int32(epoch + 1))
	return l.write(ctx, next)
}

// Release releases the lock, if it is still held.
func (l *Lease) Release(ctx context.Context) error {
	l.stop()
	<-l.ended
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return nil
	}
	l.lost = errors.New("the lock was released")
	free := l.current.DeepCopy()
	free.Spec.HolderIdentity, free.Spec.RenewTime = nil, &metav1.MicroTime{Time: time.Now()}
	delete(free.Annotations, annotationProcess)
	_, err := call(ctx, "releasing the lock", func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.leases.Update(ctx, free, metav1.UpdateOptions{FieldManager: fieldManager})
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// hold starts the renewal.
func (l *Lease) hold(ctx context.Context) context.Context {
	held, lose := context.WithCancelCause(ctx)
	renewal, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.lose, l.stop = lose, stop
	go func() {
		defer close(l.ended)
		tick := time.NewTicker(renewEvery)
		defer tick.Stop()
		for {
			select {
			case <-renewal.Done():
				return
			case <-tick.C:
			}
			l.mu.Lock()
			if l.lost == nil {
				_ = l.renew(renewal) // a lost lock ends the context; everything else is retried
			}
			l.mu.Unlock()
		}
	}()
	return held
}

// renew writes a new renewal time over the version that this process wrote last. l.mu is held.
func (l *Lease) renew(ctx context.Context) error { return l.write(ctx, l.current.DeepCopy()) }

// write does the same, with changes to other fields too. l.mu is held.
func (l *Lease) write(ctx context.Context, next *coordinationv1.Lease) error {
	begun := l.now()
	next.Spec.RenewTime = &metav1.MicroTime{Time: begun.at}
	written, err := call(ctx, "renewing the lock", func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.leases.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
	})
	switch {
	case err == nil:
		l.current, l.renewed = written, begun
		return nil
	case apierrors.IsNotFound(err):
		return l.give(engine.WithHint(errors.New("the lock on the cluster was deleted"), "`theseus resume` continues"))
	case !apierrors.IsConflict(err):
		return err
	}
	seen, err := l.look(ctx)
	switch {
	case err != nil:
		return err
	case seen == nil:
		return l.give(engine.WithHint(errors.New("the lock on the cluster was deleted"), "`theseus resume` continues"))
	case holderOf(seen) != l.holder || seen.Annotations[annotationProcess] != l.current.Annotations[annotationProcess]:
		return l.give(fmt.Errorf("the lock was lost: %w", held(seen)))
	}
	l.current = seen // still held: the answer of a write was lost, or another client changed a label
	return fmt.Errorf("renewing the lock: %w: another client wrote it meanwhile", engine.ErrUnavailable)
}

// give records that the lock is lost, and ends the context.
func (l *Lease) give(err error) error {
	l.lost = err
	l.lose(err)
	return err
}

// look reads the lock; nil if there is none.
func (l *Lease) look(ctx context.Context) (*coordinationv1.Lease, error) {
	seen, err := call(ctx, "reading the lock", func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.leases.Get(ctx, manifest.Lease, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return seen, err
}

// take writes this holder into the lock, over the version that was read.
func (l *Lease) take(ctx context.Context, seen *coordinationv1.Lease) error {
	begun := l.now()
	now := metav1.MicroTime{Time: begun.at}
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: manifest.Lease, Namespace: v1alpha1.Namespace}}
	if seen != nil {
		next = seen.DeepCopy()
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	next.Labels[v1alpha1.LabelManaged] = "true"
	next.Annotations[annotationProcess] = process(os.Getpid())
	seconds, transitions := int32(leaseDuration/time.Second), int32(epochOf(next))+1
	next.Spec = coordinationv1.LeaseSpec{HolderIdentity: &l.holder, LeaseDurationSeconds: &seconds,
		AcquireTime: &now, RenewTime: &now, LeaseTransitions: &transitions}
	l.tried = append(l.tried, now)
	written, err := call(ctx, "taking the lock", func(ctx context.Context) (*coordinationv1.Lease, error) {
		if seen == nil {
			return l.leases.Create(ctx, next, metav1.CreateOptions{FieldManager: fieldManager})
		}
		return l.leases.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
	})
	if err == nil {
		l.current, l.renewed = written, begun
	}
	return err
}

// mine is true if this process took the lock, and the answer was lost.
func (l *Lease) mine(seen *coordinationv1.Lease) bool {
	return seen != nil && holderOf(seen) == l.holder && seen.Annotations[annotationProcess] == process(os.Getpid()) &&
		seen.Spec.AcquireTime != nil && slices.ContainsFunc(l.tried, func(tried metav1.MicroTime) bool {
		// The API has microseconds.
		return tried.Truncate(time.Microsecond).Equal(seen.Spec.AcquireTime.Truncate(time.Microsecond))
	})
}

// Guard is an Actor that acts only while the lock is held.
func (l *Lease) Guard(actor engine.Actor) engine.Actor { return guarded{actor, l} }

type guarded struct {
	engine.Actor
	lease *Lease
}

func (g guarded) Do(ctx context.Context, a step.Action, before json.RawMessage) (json.RawMessage, error) {
	if err := g.lease.Check(ctx); err != nil {
		return nil, err
	}
	return g.Actor.Do(ctx, a, before)
}

// GuardJournal is a Journal that reports a lost lock if another engine has written a record. A lost lock ends the
// context too.
func (l *Lease) GuardJournal(records engine.Journal) engine.Journal {
	return guardedJournal{records, l}
}

type guardedJournal struct {
	engine.Journal
	lease *Lease
}

func (g guardedJournal) Append(ctx context.Context, records ...engine.Record) error {
	err := g.Journal.Append(ctx, records...)
	if !errors.Is(err, ErrTaken) {
		return err
	}
	g.lease.mu.Lock()
	defer g.lease.mu.Unlock()
	if g.lease.lost != nil {
		return g.lease.lost
	}
	if lost := g.lease.renew(ctx); lost != nil {
		return lost
	}
	return err
}

func held(l *coordinationv1.Lease) *HeldError {
	e := &HeldError{Holder: holderOf(l)}
	if l.Spec.AcquireTime != nil {
		e.Since = l.Spec.AcquireTime.Time
	}
	return e
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func epochOf(l *coordinationv1.Lease) int64 {
	if l.Spec.LeaseTransitions == nil {
		return 0
	}
	return int64(*l.Spec.LeaseTransitions)
}

func durationOf(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return leaseDuration
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// alike is true if a holder has not renewed between two reads.
func alike(a, b *coordinationv1.Lease) bool {
	return holderOf(a) == holderOf(b) && a.Spec.RenewTime.Equal(b.Spec.RenewTime)
}
