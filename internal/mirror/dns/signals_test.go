package dns_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/dnstest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// TestSignals: services that fail their own users since the names moved go back, whatever a gate's own requests say.
func TestSignals(t *testing.T) {
	dnstest.NotShort(t)
	const n = 6
	w := newWorld(t, "bind", n)
	var moved atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rate := "0.01"
		if moved.Load() {
			rate = "0.2"
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,%q]}]}}`,
			time.Now().Unix(), rate)
	}))
	t.Cleanup(server.Close)
	w.actor.Zones[0].Provider = &whenever{Provider: w.server.Primary(), at: 3, do: func() { moved.Store(true) }}
	o := quick()
	o.First, o.Bake = 2, 1
	deps := func() engine.Deps {
		deps, p := w.deps(&journal.Memory{}), dns.Plan(newPlan(moves(n), o))
		signals, err := run.Watch(t.Context(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		deps.Gate = run.Asking(w.gate, p, signals)
		return deps
	}
	o.SLO = []string{server.URL + " errors / requests <= 0.05"}
	rolledBack(t, w.run(newPlan(moves(n), o), deps()), "errors / requests is 0.2, and must be <= 0.05")
	w.all(blue, blueOwner, 2)
	o.SLO = []string{server.URL + " errors / requests <= 0.5"}
	if outcome := w.run(newPlan(moves(n), o), deps()); outcome.End != engine.EndDone {
		t.Errorf("%s: %s", outcome.End, outcome.Cause)
	}
	w.all(green, greenOwner, 2)
}
