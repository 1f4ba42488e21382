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

// TestBenchPage: the page of a benchmark has its drawings and its table; marks are within the axis, a latency
// beyond the timeout is at its end, and what was not measured says so.
func TestBenchPage(t *testing.T) {
	r := loaded(1500, 2)
	r.Tasks = append(r.Tasks, bench.Task{Kind: bench.RoundTrip, Path: bench.TwoNodes, Rate: 100},
		bench.Task{Kind: bench.Stream, Path: bench.TwoNodes, Streams: 1, Rate: 100},
		bench.Task{Kind: bench.Blast, Path: bench.TwoNodes, Rate: 100})
	r.Samples[0].UnderLoad = &bench.Latency{P50: 150, P99: bench.Over, P999: bench.Over, Offered: 100, Answered: 90}
	r.Samples = append(r.Samples, bench.Sample{Task: 1, Latency: &bench.Latency{P50: 100, P99: 300, Offered: 100,
		Answered: 100}}, bench.Sample{Task: 2, Run: 1, Value: 40}, bench.Sample{Task: 2, Run: 2, Value: 80},
		bench.Sample{Task: 3, Error: "nothing <arrived> in time"})
	r.Rows = bench.Rows(r.Tasks, r.Samples)
	r.Says = r.Words()
	page, err := Bench(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">Round trip at rest and under load<", ">Throughput<", ">under requests<",
		">at rest<", "pod to pod, two nodes, TCP, 1 stream, rate: 60.0 [40.0-80.0] Mbit/s", "P99: &gt;1000",
		">not measured<", "nothing &lt;arrived&gt; in time", ">0.10 · 0.30<", "60 [40-80] Mbit/s *"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is missing:\n%s", want, page[strings.Index(string(page), "<body>"):])
		}
	}
	for _, drawing := range resultDrawings(r) {
		for _, row := range drawing.Rows {
			for _, box := range row.Boxes {
				if box.X < loadLeft-2 || box.X+box.W > drawWidth-loadRight+3 || box.W < 1 || box.Y > drawing.Bottom {
					t.Errorf("%s, %s: %+v is outside", drawing.Title, row.Name, box)
				}
			}
		}
	}
	if drawn := resultDrawings(&bench.Result{}); drawn != nil {
		t.Errorf("of nothing: %+v", drawn)
	}
}

// TestLoadDrawings: a figure that is worse has its own colour, below the one before.
func TestLoadDrawings(t *testing.T) {
	l := Build(Input{Load: bench.Pair{Before: loaded(900, 0), After: loaded(4000, 3)}}).Load
	drawings := l.Drawings()
	if len(drawings) != 1 || len(drawings[0].Rows) != 3 {
		t.Fatalf("%+v", drawings)
	}
	p99 := drawings[0].Rows[2].Boxes
	if len(p99) != 4 || p99[1].Tone != "none" || p99[3].Tone != "warn" || p99[3].Y <= p99[1].Y || p99[3].X <= p99[1].X {
		t.Errorf("%+v", p99)
	}
}
