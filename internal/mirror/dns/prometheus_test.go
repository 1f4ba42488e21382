package dns_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/dnstest"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// prometheus answers each query with what text returns.
func prometheus(t *testing.T, text func() string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/query" || r.URL.Query().Get("query") != "errors / requests" {
			http.Error(w, "no such query", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, text())
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const one = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"%s"]}]}}`

// TestErrorRate: the greatest of all series counts, and what is no number is an error, never a rate of nothing.
func TestErrorRate(t *testing.T) {
	for text, want := range map[string]string{
		fmt.Sprintf(one, "0.25"): "0.25",
		`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"0.1"]},{"value":[1,"0.5"]},{"value":[1,"0.2"]}]}}`: "0.5",
		`{"status":"success","data":{"resultType":"scalar","result":[1,"0.75"]}}`:                                                    "0.75",
		`{"status":"success","data":{"resultType":"vector","result":[]}}`:                                                            "the query yields no data",
		`{"status":"success","data":{"resultType":"matrix","result":[]}}`:                                                            "a scalar or a vector is needed",
		`{"status":"error","error":"parse error"}`:                                                                                   "the query fails: parse error",
		fmt.Sprintf(one, "NaN"):    "which is no number",
		`<html>sign in</html>`:     "HTTP status 200, and no JSON",
		strings.Repeat(" ", 2<<20): "no JSON",
	} {
		rate, err := dns.ErrorRate(t.Context(), prometheus(t, func() string { return text })+"/", "errors / requests")
		if got := fmt.Sprint(rate); err != nil && !strings.Contains(err.Error(), want) || err == nil && got != want {
			t.Errorf("%.80s: %s, %v, want %q", text, got, err, want)
		}
	}
	if _, err := dns.ErrorRate(t.Context(), "http://127.0.0.1:1", "errors / requests"); err == nil {
		t.Error("nobody answers, and there is a rate")
	}
}

// TestGateErrorRate: services that fail their own users since the names moved go back, whatever a gate's own requests say; and so
// they do where nobody knows.
func TestGateErrorRate(t *testing.T) {
	dnstest.NotShort(t)
	const n = 6
	w := newWorld(t, "bind", n)
	for text, says := range map[string]string{fmt.Sprintf(one, "0.2"): "error rate 0.2 of at most 0.05", `{}`: "no error rate: "} {
		var moved atomic.Bool
		w.actor.Zones[0].Provider = &whenever{Provider: w.server.Primary(), at: 3, do: func() { moved.Store(true) }}
		o := quick()
		o.First, o.Bake = 2, 1
		o.ErrorRate = &shift.ErrorRate{Query: "errors / requests", Max: 0.05, Prometheus: prometheus(t, func() string {
			if moved.Load() {
				return text
			}
			return fmt.Sprintf(one, "0.01")
		})}
		rolledBack(t, w.run(newPlan(moves(n), o), w.deps(&journal.Memory{})), says)
		w.all(blue, blueOwner, 2)
		o.ErrorRate.Max, text = 0.5, fmt.Sprintf(one, "0.2")
		if outcome := w.run(newPlan(moves(n), o), w.deps(&journal.Memory{})); outcome.End != engine.EndDone {
			t.Errorf("%s: %s", outcome.End, outcome.Cause)
		}
		w.all(green, greenOwner, 2)
		w.reset(n)
	}
}
