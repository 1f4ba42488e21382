package dns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/dnstest"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// leaping is a clock whose long sleeps take no time; short ones, between two looks at a server, are real.
type leaping struct{ ahead time.Duration }

func (l *leaping) Now() time.Time { return time.Now().Add(l.ahead) }

func (l *leaping) Sleep(ctx context.Context, d time.Duration) error {
	if d < 500*time.Millisecond {
		return wallClock{}.Sleep(ctx, min(d, 20*time.Millisecond))
	}
	l.ahead += d
	return ctx.Err()
}

// crash is what ends a process in the middle of something.
type crash struct{}

// fuse burns down at every point where a process could end, and ends it when it is out.
type fuse struct{ left int }

func (f *fuse) point() {
	if f.left--; f.left == 0 {
		panic(crash{})
	}
}

// fragileJournal and fragileZone can end before and after each write.
type fragileJournal struct {
	*journal.Memory
	*fuse
}

func (f fragileJournal) Append(ctx context.Context, records ...engine.Record) error {
	for _, r := range records {
		f.point()
		if err := f.Memory.Append(ctx, r); err != nil {
			return err
		}
		f.point()
	}
	return nil
}

type fragileZone struct {
	dns.Provider
	*fuse
}

func (f fragileZone) Commit(ctx context.Context, t zone.Transaction) error {
	f.point()
	defer f.point()
	return f.Provider.Commit(ctx, t)
}

// attempt runs until the end or the crash.
func (w *world) attempt(p *shift.Plan, records *journal.Memory, points int) (outcome engine.Outcome, crashed bool) {
	w.t.Helper()
	f := &fuse{points}
	clock := &leaping{}
	actor := *w.actor
	actor.Clock, actor.Resolvers = clock, nil // caches are another test's
	actor.Zones = []*dns.Zone{{Name: origin, Provider: fragileZone{w.provider, f},
		Authoritative: w.actor.Zones[0].Authoritative}}
	gate := *w.gate
	gate.Clock = clock
	deps := w.deps(fragileJournal{records, f})
	deps.Actor, deps.Gate, deps.Clock = &actor, &gate, clock
	defer func() {
		if r := recover(); r != nil && r != any(crash{}) {
			panic(r)
		} else if r != nil {
			crashed = true
		}
	}()
	return w.run(p, deps), false
}

// TestCrash ends the process at every write, to the journal and to the zone, before it and after it; another one goes
// on to the same end: on the way there, and on the way back that a failed gate demands.
func TestCrash(t *testing.T) {
	dnstest.NotShort(t)
	const n = 6
	w := newWorld(t, "bind", n)
	o := quick()
	o.First, o.Batch, o.Bake = 2, 2, 1
	p := newPlan(moves(n), o)
	for _, broken := range []bool{false, true} {
		t.Run(fmt.Sprintf("broken=%v", broken), func(t *testing.T) {
			w.t = t
			for points := 1; ; points++ {
				records := &journal.Memory{}
				if broken { // names of the last wave: what they are proven by works, what the gate asks does not
					p = newPlan(gateFails(n), o)
				}
				_, crashed := w.attempt(p, records, points)
				outcome, again := w.attempt(p, records, 0)
				switch want := map[bool]engine.End{false: engine.EndDone, true: engine.EndRolledBack}[broken]; {
				case again:
					t.Fatal("crashed twice")
				case outcome.End != want:
					t.Fatalf("crashed at point %d: %s: %s", points, outcome.End, outcome.Cause)
				}
				if broken {
					w.all(blue, blueOwner, 2)
				} else {
					w.all(green, greenOwner, 2)
					w.reset(n)
				}
				if !crashed {
					t.Logf("%d points", points-1)
					if points < 40 {
						t.Errorf("only %d points", points-1)
					}
					return
				}
			}
		})
	}
}

// gateFails are moves whose last name is not served under it when it is asked by name.
func gateFails(n int) []zone.Move {
	all := moves(n)
	all[n-1].Probes[0].Kind = zone.ProbeTCP
	last := zone.Probe{Kind: zone.ProbeTCP, Host: "nowhere." + strings.TrimSuffix(origin, "."),
		Port: 80, At: []string{green}}
	all[n-1].Probes = append(all[n-1].Probes, last)
	return all
}

// reset brings the zone back by hand.
func (w *world) reset(n int) {
	w.t.Helper()
	t := zone.Transaction{Zone: origin}
	for _, m := range moves(n) {
		t.Units = append(t.Units, zone.Unit{Name: m.Name, Before: m.After, After: m.Before})
	}
	if err := w.server.Primary().Commit(w.t.Context(), t); err != nil {
		w.t.Fatal(err)
	}
}

// TestAnswerLost commits, and loses the answer: the same process tries again, and finds it done.
func TestAnswerLost(t *testing.T) {
	dnstest.NotShort(t)
	w := newWorld(t, "bind", 1)
	lossy := &lossyZone{Provider: w.server.Primary()}
	w.actor.Zones[0].Provider = lossy
	w.actor.Resolvers = nil
	if outcome := w.run(newPlan(moves(1), quick()), w.deps(&journal.Memory{})); outcome.End != engine.EndDone {
		t.Fatalf("%s: %s", outcome.End, outcome.Cause)
	}
	w.all(green, greenOwner, 2)
	if lossy.lost < 3 {
		t.Errorf("%d answers lost", lossy.lost)
	}
}

// lossyZone loses the first answer to each change.
type lossyZone struct {
	dns.Provider
	lost  int
	again bool
}

func (l *lossyZone) Commit(ctx context.Context, t zone.Transaction) error {
	err := l.Provider.Commit(ctx, t)
	if l.again = !l.again; l.again && err == nil {
		l.lost++
		return errors.Join(engine.ErrUnavailable, errors.New("the answer is lost"))
	}
	return err
}

// BenchmarkHundred moves a hundred names on BIND: proven, moved, seen at the server, watched for a moment, and each
// record of the journal on the disk. Their TTLs are low already.
func BenchmarkHundred(b *testing.B) {
	const n = 100
	w := newWorld(b, "bind", n)
	w.actor.Resolvers = nil
	o := quick()
	o.TTL, o.Bake = 2, 1
	p := newPlan(moves(n), o)
	steps := dns.Plan(p)
	steps.Steps = steps.Steps[:len(steps.Steps)-1] // but the wait for caches
	for b.Loop() {
		records, err := journal.OpenFile(b.TempDir() + "/journal")
		if err != nil {
			b.Fatal(err)
		}
		outcome, err := engine.Run(b.Context(), steps, w.deps(records))
		if err != nil || outcome.End != engine.EndDone {
			b.Fatalf("%v, %+v", err, outcome)
		}
		b.StopTimer()
		records.Close()
		w.all(green, greenOwner, 2)
		w.reset(n)
		b.StartTimer()
	}
}
