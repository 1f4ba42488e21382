package journal

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// leases is the one Lease of a cluster, with the conflicts of a real server.
type leases struct {
	coordination.LeaseInterface
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	away    bool
	refuses bool   // every write
	late    string // a holder whose writes do not arrive
	lost    error  // of the next write, which arrives
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// Get implements coordination.LeaseInterface.
func (l *leases) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.away:
		return nil, apierrors.NewServiceUnavailable("away")
	case l.lease == nil:
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	return l.lease.DeepCopy(), nil
}

// Create implements coordination.LeaseInterface.
func (l *leases) Create(_ context.Context, o *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease != nil {
		return nil, apierrors.NewAlreadyExists(leaseResource, o.Name)
	}
	return l.store(o)
}

// Update implements coordination.LeaseInterface.
func (l *leases) Update(_ context.Context, o *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.away, l.late != "" && *o.Spec.HolderIdentity == l.late:
		return nil, apierrors.NewServiceUnavailable("away")
	case l.refuses:
		return nil, apierrors.NewForbidden(leaseResource, o.Name,
			errors.New(`User "eve" cannot update resource "leases"`))
	case l.lease == nil:
		return nil, apierrors.NewNotFound(leaseResource, o.Name)
	case l.lease.ResourceVersion != o.ResourceVersion:
		return nil, apierrors.NewConflict(leaseResource, o.Name, errors.New("modified"))
	}
	return l.store(o)
}

func (l *leases) store(o *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	l.version++
	l.lease = o.DeepCopy()
	l.lease.ResourceVersion = strconv.Itoa(l.version)
	if err := l.lost; err != nil {
		l.lost = nil
		return nil, err
	}
	return l.lease.DeepCopy(), nil
}

// edit changes the lease as somebody else would.
func (l *leases) edit(f func(*coordinationv1.Lease)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.lease)
	l.version++
	l.lease.ResourceVersion = strconv.Itoa(l.version)
}

func (l *leases) setLate(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = holder
}

func (l *leases) setAway(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

// setBack makes the last renewal one of a holder whose clock is behind.
func (l *leases) setBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease.Spec.RenewTime = &metav1.MicroTime{Time: l.lease.Spec.RenewTime.Add(-time.Hour)}
}

// elsewhere makes the holder one of another machine, of which nothing is known.
func elsewhere(l *coordinationv1.Lease) { delete(l.Annotations, annotationProcess) }

func acquire(t *testing.T, l *leases, holder string) (*Lease, context.Context) {
	t.Helper()
	lease, ctx, err := Acquire(t.Context(), l, holder)
	if err != nil {
		t.Fatal(err)
	}
	return lease, ctx
}

func TestLeaseKeepsASecondOperatorOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		first, ctx := acquire(t, l, "ann@one/1")
		since := time.Now()
		time.Sleep(time.Hour)
		begun := time.Now()
		_, _, err := Acquire(t.Context(), l, "bob@two/2")
		var held *HeldError
		if !errors.As(err, &held) || held.Holder != "ann@one/1" || !held.Since.Equal(since) ||
			engine.HintOf(err) == "" {
			t.Fatalf("the second operator got %v", err)
		}
		if !strings.Contains(err.Error(), "ann@one/1") || time.Since(begun) > 2*renewEvery {
			t.Errorf("%v, after %s", err, time.Since(begun))
		}
		if ctx.Err() != nil {
			t.Errorf("the first lost it: %v", context.Cause(ctx))
		}
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun = time.Now()
		second, _ := acquire(t, l, "bob@two/2")
		if time.Since(begun) != 0 {
			t.Errorf("a lock that was given back is taken after %s", time.Since(begun))
		}
		if err := second.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := first.Check(t.Context()); err == nil {
			t.Error("a lock that was given back is held")
		}
	})
}

// TestJournalOfALostLease: who stood still while another engine took the lock and wrote to the journal is told of the
// lock, whether its renewal or its next record finds out first. A record of nobody's is told as it is.
func TestJournalOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		first, ctx := acquire(t, l, "ann@one/1")
		defer first.Release(context.WithoutCancel(t.Context())) //nolint:errcheck // it is lost
		guarded := first.GuardJournal(taken{})
		if err := guarded.Append(ctx, engine.Record{}); !errors.Is(err, ErrTaken) || ctx.Err() != nil {
			t.Fatalf("the lock is held: %v, %v", err, context.Cause(ctx))
		}
		l.edit(func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = new("bob@two/2") })
		for range 2 {
			err := guarded.Append(ctx, engine.Record{})
			var held *HeldError
			if !errors.As(err, &held) || held.Holder != "bob@two/2" || !errors.As(context.Cause(ctx), &held) {
				t.Errorf("%v; the context: %v", err, context.Cause(ctx))
			}
		}
	})
}

// taken is a journal to which somebody else wrote.
type taken struct{ engine.Journal }

func (taken) Append(context.Context, ...engine.Record) error { return ErrTaken }

// TestLeaseOfTheDead takes over from a holder on another machine that renews no more, and demands that the old
// one, should it live after all, is stopped.
func TestLeaseOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		first, ctx := acquire(t, l, "ann@one/1")
		first.stop() // it renews no more, as a process that is stopped
		<-first.ended
		l.edit(elsewhere)
		begun := time.Now()
		second, _ := acquire(t, l, "bob@two/2")
		if took := time.Since(begun); took < leaseDuration || took > leaseDuration+2*watchEvery {
			t.Errorf("taken over after %s", took)
		}
		if err := first.Check(t.Context()); !strings.Contains(err.Error(), "bob@two/2") {
			t.Errorf("the first holder's lock: %v", err)
		}
		if cause := context.Cause(ctx); cause == nil || !strings.Contains(cause.Error(), "bob@two/2") {
			t.Errorf("the first holder's context: %v", cause)
		}
		if err := second.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLeaseOutage takes the API server away for longer than the lease runs: the lock is not lost by that, but
// nothing is done until it is known to be held.
func TestLeaseOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		lease, ctx := acquire(t, l, "ann@one/1")
		var did counter
		actor := lease.Guard(&did)
		l.setAway(true)
		time.Sleep(4 * leaseDuration)
		if _, err := actor.Do(ctx, step.Action{}, nil); !errors.Is(err, engine.ErrUnavailable) || did != 0 {
			t.Errorf("cut off, it did %d actions: %v", did, err)
		}
		l.setAway(false)
		if _, err := actor.Do(ctx, step.Action{}, nil); err != nil || did != 1 {
			t.Errorf("back again, it did %d actions: %v", did, err)
		}
		if ctx.Err() != nil {
			t.Errorf("lost by an outage: %v", context.Cause(ctx))
		}
		l.edit(func(o *coordinationv1.Lease) { o.Labels["touched"] = "yes" })
		time.Sleep(3 * renewEvery)
		if err := lease.Check(ctx); err != nil {
			t.Errorf("lost by a label: %v", err)
		}
		l.edit(func(o *coordinationv1.Lease) { other := "bob@two/2"; o.Spec.HolderIdentity = &other })
		<-ctx.Done()
		if !strings.Contains(context.Cause(ctx).Error(), "bob@two/2") {
			t.Errorf("cause: %v", context.Cause(ctx))
		}
		if _, err := actor.Do(ctx, step.Action{}, nil); err == nil || did != 1 {
			t.Errorf("without the lock, it did %d actions: %v", did, err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if holderOf(l.lease) != "bob@two/2" {
			t.Errorf("releasing a lost lock made it %q's", holderOf(l.lease))
		}
	})
}

// counter is an Actor that counts what it does.
type counter int

func (c *counter) Observe(context.Context, step.Action, json.RawMessage) (engine.Observation, error) {
	return engine.Observation{}, nil
}
func (c *counter) Do(context.Context, step.Action, json.RawMessage) (json.RawMessage, error) {
	*c++
	return nil, nil
}
func (c *counter) Holds(context.Context, step.Condition) (bool, string, error) {
	return true, "", nil
}

// TestLeaseOfAKilledProcess kills a process of this machine: its lock is taken at once, reaped or not. A
// process that lives is never taken for gone, whoever's it is.
func TestLeaseOfAKilledProcess(t *testing.T) {
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	name := process(child.Process.Pid)
	if name == "" || gone(name) || gone(process(os.Getpid())) || gone(process(1)) ||
		gone("") || gone("other boot 1 2") {
		t.Fatalf("%q is taken for gone while it lives", name)
	}
	if !gone(name + "1") {
		t.Error("another process with the same pid is taken for it")
	}
	l := &leases{}
	first, _ := acquire(t, l, "ann@one/1")
	first.stop()
	l.edit(func(o *coordinationv1.Lease) { o.Annotations[annotationProcess] = name })
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, dead := startOf(child.Process.Pid); !dead; _, dead = startOf(child.Process.Pid) {
		runtime.Gosched()
	}
	second, _ := acquire(t, l, "ann@one/2") // a zombie
	if err := second.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if !gone(name) {
		t.Error("a reaped process is not gone")
	}
}

// holding is Holding for a test; it counts how often Holding says that it watches the lock, and for how long it does.
func holding(t *testing.T, l *leases, end time.Time) (holder string, said int, took time.Duration) {
	t.Helper()
	begun := time.Now()
	held, err := Holding(t.Context(), l, end, func(string) { said++ })
	if err != nil {
		t.Error(err)
	}
	if held != nil {
		holder = held.Holder
	}
	return holder, said, time.Since(begun)
}

// TestHolding: a holder that renews runs a migration, whatever its clock says; one that ended without releasing the
// lock is found out by watching the lock, and only then. A process that took the lock after a migration's end does not
// run that one.
func TestHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, before := &leases{}, time.Now()
		time.Sleep(time.Second)
		first, _ := acquire(t, l, "ann@one/1")
		after := time.Now().Add(time.Second)
		expect := func(when string, end time.Time, want string, watches bool) {
			t.Helper()
			holder, said, took := holding(t, l, end)
			if holder != want || (said == 1) != watches || watches != (took > 0) || took > leaseDuration+watchEvery ||
				watches && want == "" && took < leaseDuration {
				t.Errorf("%s: %q after %s, said %d times", when, holder, took, said)
			}
		}
		expect("alive", time.Time{}, "ann@one/1", false)
		expect("the migration ended since", after, "ann@one/1", false)
		expect("the migration ended before", before, "", false)
		first.stop()
		<-first.ended
		expect("just now", time.Time{}, "ann@one/1", false)
		time.Sleep(2 * time.Minute)
		expect("it has ended", time.Time{}, "", true)
		expect("so has the migration", after, "", true)
		expect("another migration's has ended", before, "", false)
		second, _ := acquire(t, l, "bob@two/2")
		l.setBack()
		expect("its clock is behind", time.Time{}, "bob@two/2", true)
		if err := second.Release(t.Context()); err != nil {
			t.Error(err)
		}
		expect("released", time.Time{}, "", false)
	})
}

// TestWatch: a caller that looks now and then is told of a holder that ended once the lease has run out, however long
// its looks are apart, and never that a living one ended, not even after an outage.
func TestWatch(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			l, w := &leases{}, &Watch{}
			look := func() (says string) {
				t.Helper()
				held, err := w.Look(t.Context(), l, time.Time{})
				if err != nil {
					t.Error(err)
				} else if held != nil {
					says = held.Error()
				}
				time.Sleep(every)
				return says
			}
			const runs, silent = "ann@one/1 is running a migration ", "ann@one/1 has not renewed its lock "
			lease, _ := acquire(t, l, "ann@one/1")
			l.setBack()
			if says := look(); !strings.HasPrefix(says, silent) {
				t.Errorf("at first: %q", says)
			}
			time.Sleep(renewEvery)
			for range 10 {
				if says := look(); !strings.HasPrefix(says, runs) {
					t.Errorf("alive: %q", says)
				}
			}
			l.setAway(true)
			time.Sleep(time.Hour + time.Second)
			l.setAway(false)
			if says := look(); !strings.HasPrefix(says, runs) {
				t.Errorf("after an outage: %q", says)
			}
			time.Sleep(renewEvery)
			look()
			lease.stop()
			<-lease.ended
			died := time.Now()
			for look() != "" {
			}
			if took := time.Since(died) - every; !w.Died || took < leaseDuration-renewEvery ||
				took > max(leaseDuration+every, 3*every) {
				t.Errorf("every %s: that it died (%t) is known after %s", every, w.Died, took)
			}
			lease, _ = acquire(t, l, "ann@one/2")
			if says := look(); !strings.HasPrefix(says, "ann@one/2 is running ") || w.Died {
				t.Errorf("the next one: %q, %t", says, w.Died)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if says := look(); says != "" || w.Died {
				t.Errorf("released: %q, %t", says, w.Died)
			}
		})
	}
}

// TestAcquireAnswerLost: a process that has taken the lock, but did not get the answer, does not take itself for
// another holder. After a timeout of its own the write is not repeated.
func TestAcquireAnswerLost(t *testing.T) {
	for name, former := range map[string]bool{"a new lock": false, "after a holder that died": true} {
		synctest.Test(t, func(t *testing.T) {
			l, want := &leases{}, int64(2)
			if former {
				first, _ := acquire(t, l, "ann@one/1")
				l.edit(elsewhere)
				first.stop()
				<-first.ended
				want++
			}
			l.lost = apierrors.NewServiceUnavailable("away")
			begun := time.Now()
			lease, _, err := Acquire(t.Context(), l, "bob@two/2")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if took := time.Since(begun); lease.Epoch() != want || took > leaseDuration+5*time.Second ||
				!former && took > 5*time.Second {
				t.Errorf("%s: taken after %s, in epoch %d", name, took, lease.Epoch())
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := &leases{lost: context.DeadlineExceeded}
		_, _, err := Acquire(t.Context(), l, "bob@two/2")
		if !errors.Is(err, context.DeadlineExceeded) || l.version != 1 {
			t.Errorf("after a timeout: %v, written %d times", err, l.version)
		}
	})
}

// TestAcquireInAnOutage: a process that watches the lock while the API server is away does not take it from a living
// holder, which could not renew it.
func TestAcquireInAnOutage(t *testing.T) {
	for lasts := 30 * time.Second; lasts < 34*time.Second; lasts += 500 * time.Millisecond { // one of both is first
		synctest.Test(t, func(t *testing.T) {
			l := &leases{}
			first, _ := acquire(t, l, "ann@one/1")
			time.AfterFunc(500*time.Millisecond, func() { l.setAway(true) })
			time.AfterFunc(time.Second/4+lasts, func() { l.setAway(false) })
			second, _, err := Acquire(t.Context(), l, "bob@two/2")
			var held *HeldError
			if err == nil {
				t.Error("it was taken")
				defer second.Release(t.Context()) //nolint:errcheck // it has failed
			} else if !errors.As(err, &held) {
				t.Error(err)
			}
			if err := first.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if err := first.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAcquireAfterAnOutage: a holder whose next renewal arrives some seconds after the outage keeps its lock, however
// long another process had watched the lock before.
func TestAcquireAfterAnOutage(t *testing.T) {
	for begins := time.Second; begins < renewEvery; begins += time.Second {
		synctest.Test(t, func(t *testing.T) {
			l := &leases{}
			first, _ := acquire(t, l, "ann@one/1")
			const lasts = 20 * time.Second
			time.AfterFunc(begins, func() {
				l.setAway(true)
				l.setLate("ann@one/1")
			})
			time.AfterFunc(begins+lasts, func() { l.setAway(false) })
			time.AfterFunc(begins+lasts+7*time.Second, func() { l.setLate("") })
			second, _, err := Acquire(t.Context(), l, "bob@two/2")
			var held *HeldError
			if err == nil {
				t.Errorf("an outage after %s: it was taken", begins)
				defer second.Release(t.Context()) //nolint:errcheck // it has failed
			} else if !errors.As(err, &held) {
				t.Error(err)
			}
			if err := first.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if err := first.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLeaseOfABencher: a benchmark has the lock for minutes. So nobody waits for it, it is named as what it is, and
// never taken for the process that runs a migration.
func TestLeaseOfABencher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		first, _ := acquire(t, l, "ann@one/1"+benches)
		if holder, _, took := holding(t, l, time.Time{}); holder != "" || took > 0 {
			t.Errorf("%s runs a migration, after %s", holder, took)
		}
		var held *HeldError
		begun := time.Now()
		_, _, err := Acquire(t.Context(), l, "bob@two/2")
		if !errors.As(err, &held) || held.Looks() || held.Runs() || time.Since(begun) > 2*renewEvery ||
			!strings.HasPrefix(err.Error(), "ann@one/1 is benchmarking the network of this cluster, since ") ||
			!strings.Contains(held.Hint(), "stop that process") {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLeaseOfAnOnlooker: who only looks is waited for, and is never taken for the process that runs a migration. Who
// can do without the lock waits for no one, and is refused at once.
func TestLeaseOfAnOnlooker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		first, _ := acquire(t, l, Onlooker("ann@one/1"))
		if holder, _, took := holding(t, l, time.Time{}); holder != "" || took > 0 {
			t.Errorf("%s runs a migration, after %s", holder, took)
		}
		var held *HeldError
		begun := time.Now()
		if _, _, err := TryAcquire(t.Context(), l, Onlooker("bob@two/2")); !errors.As(err, &held) || !held.Looks() ||
			time.Since(begun) > 2*renewEvery ||
			!strings.HasPrefix(err.Error(), "ann@one/1 is looking at a guard on this cluster, since ") {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		go func() {
			time.Sleep(20 * time.Second)
			if err := first.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		begun = time.Now()
		second, _ := acquire(t, l, "bob@two/2")
		if took := time.Since(begun); took < 20*time.Second || took > 22*time.Second {
			t.Errorf("taken after %s", took)
		}
		if err := second.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		third, _ := acquire(t, l, Looker())
		begun = time.Now()
		if _, _, err := Acquire(t.Context(), l, "bob@two/2"); !errors.As(err, &held) || time.Since(begun) < looksFor ||
			time.Since(begun) > looksFor+2*renewEvery {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		if err := third.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.refuses = true
		begun = time.Now()
		if _, _, err := TryAcquire(t.Context(), l, Onlooker("bob@two/2")); !apierrors.IsForbidden(err) ||
			time.Since(begun) > 0 {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
	})
}
