package journal

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestLeaseInSuspend: a laptop sleeps for an hour, while which Go's clock stands still, and another operator takes the
// lock. After it has woken up it does nothing more.
func TestLeaseInSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		lease, ctx := acquire(t, l, "ann@one/1")
		defer lease.Release(context.WithoutCancel(t.Context())) //nolint:errcheck // it is lost
		var did counter
		actor := lease.Guard(&did)
		if _, err := actor.Do(ctx, step.Action{}, nil); err != nil || did != 1 {
			t.Fatalf("with the lock it did %d acts: %v", did, err)
		}
		boot := sinceBoot()
		lease.boot = func() time.Duration { return boot + time.Hour }
		l.edit(func(o *coordinationv1.Lease) { o.Spec.HolderIdentity = new("bob@two/2") })
		_, err := actor.Do(ctx, step.Action{}, nil)
		var held *HeldError
		if !errors.As(err, &held) || did != 1 || ctx.Err() == nil {
			t.Errorf("after an hour of sleep it did %d acts: %v", did, err)
		}
	})
}

// TestEpochs: the epoch grows with every holder, also where the lock was deleted in between.
func TestEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		for want := int64(1); want <= 3; want++ {
			lease, _ := acquire(t, l, "ann@one/1")
			if got := lease.Epoch(); got != want {
				t.Errorf("epoch %d, want %d", got, want)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		l.lease = nil
		lease, _ := acquire(t, l, "ann@one/1")
		l.setAway(true)
		if err := lease.Exceed(t.Context(), 3); !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("the server is away: %v", err)
		}
		l.setAway(false)
		for range 2 { // what is higher already stays
			if err := lease.Exceed(t.Context(), 3); err != nil || lease.Epoch() != 4 || epochOf(l.lease) != 4 {
				t.Errorf("epoch %d here and %d in the cluster, %v", lease.Epoch(), epochOf(l.lease), err)
			}
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestJournalOfAnOlderEpoch: the holder of before writes nothing after the first record of the next one, though its
// record has the right number. A journal in which it did is refused.
func TestJournalOfAnOlderEpoch(t *testing.T) {
	s, first := newCluster(t)
	records := sample(4)
	for i := range records {
		records[i].Epoch = 1 + int64(i)/2 // 1 1 2 2
	}
	records = link(records)
	add(t, first, records[:2]...)
	add(t, takeOver(s), records[2])
	if _, err := first.Records(t.Context()); err != nil { // it has read what the other wrote, and did not look at who
		t.Fatal(err)
	}
	stale := records[3]
	stale.Epoch = 1
	if err := first.Append(t.Context(), stale); !errors.Is(err, ErrTaken) {
		t.Errorf("a record of an older epoch was written: %v", err)
	}
	add(t, takeOver(s), records[2:]...) // an append whose answer was lost goes on
	wantCluster(t, s, records)
	if _, err := engine.Replay(append(records[:3:3], stale)); err == nil ||
		!strings.Contains(err.Error(), "held the lock in epoch 1") {
		t.Errorf("a journal with it was read: %v", err)
	}
}
