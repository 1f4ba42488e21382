package dns_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/byrecord"
	"github.com/theseus-cni/theseus/internal/mirror/dns/dnstest"
	"github.com/theseus-cni/theseus/internal/mirror/dns/rfc2136"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// theirs is the address that somebody else gives a name.
const theirs = "192.0.2.99"

// meddle changes one name as somebody else would, without asking what is there.
func (w *world) meddle(name string) {
	w.t.Helper()
	m := new(mdns.Msg)
	m.SetUpdate(origin)
	m.RemoveRRset([]mdns.RR{&mdns.ANY{Hdr: mdns.RR_Header{Name: name, Rrtype: mdns.TypeA}}})
	rr, err := mdns.NewRR(name + " 2 IN A " + theirs)
	if err != nil {
		w.t.Fatal(err)
	}
	m.Insert([]mdns.RR{rr})
	m.SetTsig(w.server.Key.Name, w.server.Key.Algorithm, 300, time.Now().Unix())
	client := &mdns.Client{Net: "tcp", TsigSecret: map[string]string{w.server.Key.Name: w.server.Key.Secret}}
	if answer, _, err := client.Exchange(m, w.server.Address); err != nil || answer.Rcode != mdns.RcodeSuccess {
		w.t.Fatalf("meddling: %v, %v", err, answer)
	}
}

// is demands what one name's address is.
func (w *world) is(name, address string) {
	w.t.Helper()
	at := zone.Place{Name: name, Type: "A"}
	current, err := w.server.Primary().Read(w.t.Context(), []zone.Place{at})
	if err != nil || len(current[at]) != 1 || !slices.Equal(current[at][0].Values, []string{address}) {
		w.t.Fatalf("%s is %v, %v; want %s", name, current[at], err, address)
	}
}

// rolledBack demands that a run failed for a reason, and was taken back.
func rolledBack(t *testing.T, outcome engine.Outcome, reason string) {
	t.Helper()
	if outcome.End != engine.EndRolledBack || outcome.ExitCode() != 4 || !strings.Contains(outcome.Cause, reason) {
		t.Fatalf("%s, exit code %d: %s; want it rolled back for %q",
			outcome.End, outcome.ExitCode(), outcome.Cause, reason)
	}
}

// whenever does something right before the commit that changes a name.
type whenever struct {
	dns.Provider
	commits int
	at      int
	do      func()
}

func (w *whenever) Commit(ctx context.Context, t zone.Transaction) error {
	if w.commits++; w.commits == w.at {
		w.do()
	}
	return w.Provider.Commit(ctx, t)
}

// Piecemeal is the provider's own.
func (w *whenever) Piecemeal() bool {
	_, piecemeal := w.Provider.(*byrecord.Zone)
	return piecemeal
}

// TestSomebodyElse changes a record before, during and after its move. It is never overwritten; what had moved goes
// back.
func TestSomebodyElse(t *testing.T) {
	dnstest.NotShort(t)
	const n = 6
	o := quick()
	o.First, o.Bake = 2, 1
	foreign := "s5." + origin
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for what, at := range map[string]int{
				"before the plan begins":            1, // lowering is the first commit
				"between the look and the change":   3, // wave-2 changes it in the third
				"after its move, before a way back": 4, // restoring is the fourth
			} {
				w := newWorld(t, kind, n)
				w.actor.Resolvers = nil
				w.actor.Zones[0].Provider = &whenever{Provider: w.provider, at: at, do: func() { w.meddle(foreign) }}
				records := &journal.Memory{}
				outcome := w.run(newPlan(moves(n), o), w.deps(records))
				rolledBack(t, outcome, "another program or person changed the records: "+foreign)
				w.is(foreign, theirs)
				w.all(blue, blueOwner, 2, foreign)
				all, _ := records.Records(t.Context())
				if left := dns.LeftAlone(all); at > 1 && (len(left) == 0 || !strings.HasPrefix(left[0], foreign)) {
					t.Errorf("%s: left alone: %q", what, left)
				}
			}
		})
	}
}

// TestGateFails breaks services at the mirror: before their names move they stay; after, everything goes back.
func TestGateFails(t *testing.T) {
	dnstest.NotShort(t)
	const n = 6
	o := quick()
	o.First, o.Bake = 2, step.Duration(200*time.Millisecond)
	w := newWorld(t, "bind", n)
	host := "s4." + strings.TrimSuffix(origin, ".")
	w.sites[green].broken.Store(&host)
	rolledBack(t, w.run(newPlan(moves(n), o), w.deps(&journal.Memory{})), host+" at "+green+": HTTP status 503")
	w.all(blue, blueOwner, 2)

	w.sites[green].broken.Store(nil)
	everything := ""
	w.actor.Zones[0].Provider = &whenever{Provider: w.server.Primary(), at: 3, do: func() {
		w.sites[green].broken.Store(&everything)
	}}
	rolledBack(t, w.run(newPlan(moves(n), o), w.deps(&journal.Memory{})), "gate")
	w.all(blue, blueOwner, 2)
}

// TestLagging leaves one of two servers behind: the wave is not done until all show it, and goes back when one never
// does.
func TestLagging(t *testing.T) {
	dnstest.NotShort(t)
	w, behind := newWorld(t, "bind", 3), newWorld(t, "bind", 3)
	w.actor.Resolvers = nil
	w.actor.Zones[0].Authoritative = []string{w.server.Address, behind.server.Address}
	o := quick()
	o.SeeWithin = step.Duration(time.Second)
	rolledBack(t, w.run(newPlan(moves(3), o), w.deps(&journal.Memory{})),
		"1 of 2 servers do not have it: "+behind.server.Address)
	w.all(blue, blueOwner, 2)
}

// counted is a clock that stops after five sleeps.
type counted struct {
	wallClock
	sleeps int
}

func (c *counted) Sleep(context.Context, time.Duration) error {
	if c.sleeps++; c.sleeps == 5 {
		return context.Canceled
	}
	return nil
}

// TestSilent leaves a server without a word: what is said of it is the same at each look, and so is said once.
func TestSilent(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent.Close() // nobody listens there any more
	var said []string
	looks := &counted{}
	actor := &dns.Actor{Zones: []*dns.Zone{{Name: origin, Authoritative: []string{silent.LocalAddr().String()}}},
		Clock: looks, Note: func(text string) { said = append(said, text) }}
	var sets []zone.RRSet
	for _, m := range moves(5) {
		sets = append(sets, m.After...)
	}
	err = actor.Shown(t.Context(), []shift.SeeArgs{{Zone: origin, Sets: sets}})
	if err == nil || looks.sleeps < 5 || len(said) != 1 ||
		!strings.Contains(said[0], "1 of 1 servers do not have it") || !strings.Contains(said[0], "refused") {
		t.Errorf("%v; it said %q", err, said)
	}
}

// TestRefused asks servers with a wrong secret, an unknown key, a wrong clock, and no right: each says what it is, and
// nothing changes.
func TestRefused(t *testing.T) {
	dnstest.NotShort(t)
	for kind := range dnstest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind, 2)
			w.actor.Resolvers = nil
			for what, spoil := range map[string]func(*rfc2136.Server){
				"the wrong secret": func(s *rfc2136.Server) { s.Key.Secret = "d3JvbmcgYW5kIHNob3J0" },
				"an unknown key":   func(s *rfc2136.Server) { s.Key.Name = "expired." },
				"a clock an hour on": func(s *rfc2136.Server) {
					s.Now = func() time.Time { return time.Now().Add(time.Hour) }
				},
				"no key": func(s *rfc2136.Server) { s.Key = rfc2136.Key{} },
			} {
				primary := w.server.Primary()
				spoil(primary)
				w.actor.Zones[0].Provider = primary
				outcome := w.run(newPlan(moves(2), quick()), w.deps(&journal.Memory{}))
				if outcome.End != engine.EndRolledBack || !strings.Contains(outcome.Cause, "refused") ||
					outcome.Advice == "" || !strings.Contains(outcome.Hint, outcome.Advice+"; then make a new plan") {
					// the server could not even take back what it never did
					t.Errorf("%s: %s: %s", what, outcome.End, outcome.Cause)
				}
				t.Logf("%s, %s: %s", kind, what, outcome.Cause)
				w.all(blue, blueOwner, 2)
				err := primary.Commit(t.Context(), zone.Transaction{Zone: origin, Units: []zone.Unit{moves(1)[0].Unit}})
				if !errors.Is(err, zone.ErrRefused) || engine.HintOf(err) == "" {
					t.Errorf("%s: %v, hint %q", what, err, engine.HintOf(err))
				}
				if _, err := primary.Load(t.Context()); err == nil || engine.HintOf(err) == "" {
					t.Errorf("%s: the zone was transferred, or without a hint: %v", what, err)
				}
			}
		})
	}
}

// TestKeyEnds takes the key away, or the clock, when some names have moved: neither can the rest go there nor these
// come home, so a person is asked, with every record and its owner at one of the two; with a key, the same journal goes
// back.
func TestKeyEnds(t *testing.T) {
	dnstest.NotShort(t)
	const n = 6
	o := quick()
	o.First, o.Bake = 2, 1
	for kind := range dnstest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for what, spoil := range map[string]func(*rfc2136.Server){
				"an expired key": func(s *rfc2136.Server) { s.Key.Name = "expired." },
				"a clock an hour on": func(s *rfc2136.Server) {
					s.Now = func() time.Time { return time.Now().Add(time.Hour) }
				},
			} {
				w := newWorld(t, kind, n)
				w.actor.Resolvers = nil
				primary := w.server.Primary()
				w.actor.Zones[0].Provider = &whenever{Provider: primary, at: 3, do: func() { spoil(primary) }}
				records := &journal.Memory{}
				outcome := w.run(newPlan(moves(n), o), w.deps(records))
				if outcome.End != engine.EndNeedsPerson || outcome.ExitCode() != 6 ||
					!strings.Contains(outcome.Cause, "refused") ||
					!strings.Contains(outcome.Hint, "; then `theseus resume` continues the rollback") ||
					outcome.Advice == "" {
					t.Fatalf("%s: %s, exit code %d: %s, hint %q", what, outcome.End, outcome.ExitCode(),
						outcome.Cause, outcome.Hint)
				}
				t.Logf("%s, %s: %s; hint: %s", kind, what, outcome.Cause, outcome.Hint)
				for i := range n {
					want := map[bool]string{true: green, false: blue}[i < 2]
					w.is(moves(n)[i].Name, want)
				}
				w.actor.Zones[0].Provider = w.server.Primary()
				deps := w.deps(records)
				deps.Control = dns.Wish(v1alpha1.DesireRollback)
				if outcome = w.run(newPlan(moves(n), o), deps); outcome.End != engine.EndRolledBack &&
					outcome.End != engine.EndStopped {
					t.Fatalf("%s: with a key: %s: %s", what, outcome.End, outcome.Cause)
				}
				w.all(blue, blueOwner, 2)
			}
		})
	}
}
