package dns_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/libdns/libdns"

	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/byrecord"
	"github.com/theseus-cni/theseus/internal/mirror/dns/dnstest"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// halting is a provider that changes records one at a time, and is gone after some.
type halting struct {
	byrecord.Provider
	left int
}

func (h *halting) SetRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	for _, record := range records {
		if h.left--; h.left < 0 {
			return nil, errors.New("the process ends here")
		}
		if _, err := h.Provider.SetRecords(ctx, zone, []libdns.Record{record}); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// TestPiecemeal ends a transaction after each of its records; what is half changed is taken for our own, and gone on
// with, there and back.
func TestPiecemeal(t *testing.T) {
	dnstest.NotShort(t)
	const n = 3
	w := newWorld(t, byRecord, n)
	w.actor.Resolvers = nil
	there := zone.Transaction{Zone: origin}
	for _, m := range moves(n) {
		there.Units = append(there.Units, m.Unit)
	}
	for records := range 2 * n {
		for address, transaction := range map[string]zone.Transaction{green: there, blue: there.Inverse()} {
			if address == green {
				w.mustCommit(there.Inverse()) // from wherever the last round left it
			} else {
				w.mustCommit(there)
			}
			z := piecewise(w.server)
			z.Provider = &halting{z.Provider, records}
			if err := z.Commit(t.Context(), transaction); err == nil || !errors.Is(err, zone.ErrRefused) {
				t.Fatalf("after %d records: %v", records, err)
			}
			w.mustCommit(transaction)
		}
	}
	w.mustCommit(there.Inverse())
	w.all(blue, blueOwner, 2)

	// A plan takes back what is half done.
	z := piecewise(w.server)
	z.Provider = &halting{z.Provider, 3}
	w.actor.Zones[0].Provider = z
	outcome := w.run(newPlan(moves(n), quick()), w.deps(&journal.Memory{}))
	if outcome.End == engine.EndDone || !strings.Contains(outcome.Cause, "the process ends here") {
		t.Fatalf("%s: %s", outcome.End, outcome.Cause)
	}
}

// mustCommit commits by a provider that works.
func (w *world) mustCommit(t zone.Transaction) {
	w.t.Helper()
	if err := piecewise(w.server).Commit(w.t.Context(), t); err != nil {
		w.t.Fatal(err)
	}
}

// TestPiecemealRefuses refuses a change of type, which would leave a name without an address, and says what a wrong key
// is.
func TestPiecemealRefuses(t *testing.T) {
	dnstest.NotShort(t)
	w := newWorld(t, byRecord, 1)
	u := moves(1)[0].Unit
	u.After = []zone.RRSet{{Name: u.Name, Type: zone.CNAME, TTL: 2, Values: []string{"lb.example.net."}}}
	z := piecewise(w.server)
	if err := z.Commit(t.Context(), zone.Transaction{Zone: origin, Units: []zone.Unit{u}}); !errors.Is(err,
		zone.ErrRefused) || engine.HintOf(err) == "" || !strings.Contains(err.Error(), "no address") {
		t.Errorf("%v", err)
	}
	w.server.Key.Secret = "d3JvbmcgYW5kIHNob3J0"
	if _, err := piecewise(w.server).Load(t.Context()); !errors.Is(err, zone.ErrRefused) || engine.HintOf(err) == "" {
		t.Errorf("%v, hint %q", err, engine.HintOf(err))
	}
	loaded, err := z.Load(t.Context())
	if err != nil || loaded.Negative != 1 || loaded.Can.Swap {
		t.Errorf("%+v, %v", loaded, err)
	}
	var _ dns.Provider = z
}
