package report

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// loaded is a result of two runs of requests with this P99, in microseconds.
func loaded(p99 bench.Micros, lost int64) *bench.Result {
	r := &bench.Result{Bounds: bench.Defaults(), Began: "2026-01-02T03:04:05Z", Client: "a", Other: "b",
		Tasks: []bench.Task{{Kind: bench.Requests, Path: bench.Service, Rate: 100}}}
	for run := range 2 {
		r.Samples = append(r.Samples, bench.Sample{Run: run, Value: 100, Latency: &bench.Latency{P50: 200,
			P99: p99 + bench.Micros(run), P999: bench.Over, Max: bench.Over, Offered: 200, Answered: 200 - lost}})
	}
	r.Rows = bench.Rows(r.Tasks, r.Samples)
	return r
}

// TestLoad: the report has the load before and after, a note for each figure that is worse, and says what was not
// measured or was stopped.
func TestLoad(t *testing.T) {
	// 2 figures, 2 runs each: each is worse or better in 2 of 6 orders
	const byChance = "; with so few runs, about 1 would be worse or better by chance"
	stopped := loaded(900, 0)
	stopped.Stopped = "node b is not Ready"
	for name, test := range map[string]struct {
		pair  bench.Pair
		text  string
		notes []string
	}{
		"worse": {bench.Pair{Before: loaded(900, 0), After: loaded(4000, 3)},
			"2 figures before and after: 1 worse, 0 better, 1 within the spread of the runs" + byChance,
			[]string{"Under load, worse after the change: " + bench.Service +
				", requests, P99: 0.90 [0.90-0.90] -> 4.00 [4.00-4.00] ms.",
				"requests: 0 were lost before the change, 6 of 400 after it."}},
		"the same": {bench.Pair{Before: loaded(900, 0), After: loaded(900, 0)},
			"2 figures before and after: 0 worse, 0 better, 2 within the spread of the runs" + byChance, nil},
		"not after": {bench.Pair{Before: stopped}, "no figure was measured both before and after",
			[]string{"The load before the change was stopped: node b is not Ready.",
				"The load was not measured after the change."}},
	} {
		m := Build(Input{Load: test.pair})
		if m.Load == nil || m.Load.Text() != test.text || !strings.Contains(Text(m), "\nload      "+test.text) {
			t.Errorf("%s: %+v", name, m.Load)
		}
		notes := strings.Join(m.Verdict.Notes, "\n")
		for _, note := range test.notes {
			if !strings.Contains(notes, note) {
				t.Errorf("%s: %q is not in %q", name, note, notes)
			}
		}
		if test.notes == nil && notes != "" {
			t.Errorf("%s: %q", name, notes)
		}
		page, err := HTML(m)
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, page)
		if !strings.Contains(string(page), test.text) {
			t.Errorf("%s: the page has no load", name)
		}
	}
	if m := Build(Input{}); m.Load != nil || strings.Contains(Text(m), "\nload ") {
		t.Errorf("nothing was measured: %+v", m.Load)
	}
}
