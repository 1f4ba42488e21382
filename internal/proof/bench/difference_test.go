package bench

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// measured is a result of three runs on one path: requests with this P99 in microseconds, of which some had no answer,
// and one stream with this rate of 100 Mbit/s that were offered.
func measured(p99 [3]int64, lost int64, rates [3]float64) *Result {
	r := &Result{Bounds: Defaults(), Began: "2026-01-02T03:04:05Z", Client: "a", Other: "b", Tasks: []Task{
		{Kind: Requests, Path: Service, Rate: 100, Duration: time.Second},
		{Kind: Stream, Path: Service, Streams: 1, Rate: 100, Duration: time.Second}}}
	for run := range 3 {
		l := &Latency{P50: 200, P99: Micros(p99[run]), P999: few, Max: Over, Offered: 200, Answered: 200 - lost}
		r.Samples = append(r.Samples, Sample{Task: 0, Run: run, Value: 100, Latency: l},
			Sample{Task: 1, Run: run, Value: rates[run]})
	}
	r.Rows = Rows(r.Tasks, r.Samples)
	return r
}

// TestDifferences: a figure is worse or better only if no run before and no run after agree; a rate that is only what
// was offered is left out. A result that was written and read again gives the same, also for a latency without end.
func TestDifferences(t *testing.T) {
	full := [3]float64{100, 100, 100}
	base := measured([3]int64{900, 1000, 1100}, 0, full)
	p99 := func(is Shift) map[string]Shift { return map[string]Shift{"P50": Same, "P99": is} }
	never := int64(Over)
	for name, test := range map[string]struct {
		after *Result
		want  map[string]Shift
		lost  bool
	}{
		"the same":  {measured([3]int64{1050, 1200, 1300}, 0, full), p99(Same), false},
		"slower":    {measured([3]int64{1101, 1200, 1300}, 0, full), p99(Worse), false},
		"faster":    {measured([3]int64{700, 800, 899}, 0, full), p99(Better), false},
		"no answer": {measured([3]int64{never, never, never}, 4, full), p99(Worse), true},
		"carries less": {measured([3]int64{900, 1000, 1100}, 0, [3]float64{60, 70, 80}),
			map[string]Shift{"P50": Same, "P99": Same, "rate": Worse}, false},
	} {
		for _, kept := range []bool{false, true} {
			pair := Pair{base, test.after}
			if kept {
				pair = Pair{again(t, base), again(t, test.after)}
			}
			got := map[string]Shift{}
			for _, d := range pair.Differences() {
				got[d.Figure] = d.Is
				if d.Path != Service || strings.Contains(d.String(), "NaN") {
					t.Errorf("%s: %s", name, d)
				}
			}
			if len(got) != len(test.want) {
				t.Errorf("%s, kept %v: %v, want %v", name, kept, got, test.want)
			}
			for figure, is := range test.want {
				if got[figure] != is {
					t.Errorf("%s, kept %v: %s is %s, want %s", name, kept, figure, got[figure], is)
				}
			}
			if lost := pair.MoreLost(); (len(lost) > 0) != test.lost {
				t.Errorf("%s: %q", name, lost)
			}
		}
	}
	// 2 figures, 3 runs each: 2 of 20 orders
	if got := (Pair{base, base}).ByChance(); math.Abs(got-0.2) > 1e-9 {
		t.Errorf("%v figures differ by chance, not 0.2", got)
	}
	one := measured([3]int64{900, 900, 900}, 0, full)
	one.Samples = one.Samples[:2] // it was stopped after the first run
	one.Rows = Rows(one.Tasks, one.Samples)
	for _, d := range (Pair{one, measured([3]int64{9000, 9000, 9000}, 0, full)}).Differences() {
		if d.Is != Unknown {
			t.Errorf("one run has no spread: %s is %s", d, d.Is)
		}
	}
	if all := (Pair{Before: base}).Differences(); all != nil {
		t.Errorf("nothing was measured after: %v", all)
	}
}

// again is a result that was written as JSON and read.
func again(t *testing.T, r *Result) *Result {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// TestReadRefuses: samples of tasks that are not there are no result.
func TestReadRefuses(t *testing.T) {
	for _, text := range []string{`{"samples":[{"task":1}],"tasks":[{}]}`, `{"samples":[{"task":-1}]}`, `[]`} {
		if r, err := Read([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, r)
		}
	}
}

// FuzzRead: whatever a file says, reading it and comparing it with itself ends, and no figure of it differs.
func FuzzRead(f *testing.F) {
	data, err := json.Marshal(measured([3]int64{900, 1000, int64(Over)}, 1, [3]float64{60, 70, 80}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(data)
		if err != nil {
			return
		}
		differs := func(d Difference) bool { return d.Is == Worse || d.Is == Better }
		if all := (Pair{r, r}).Differences(); slices.ContainsFunc(all, differs) && distinct(r.Rows) {
			t.Errorf("%s differs from itself: %v", data, all)
		}
	})
}

// distinct reports whether no two rows have the same name, and all figures are numbers.
func distinct(rows []Row) bool {
	seen := map[string]bool{}
	for _, row := range rows {
		if name := row.Path + "\x00" + row.Name; seen[name] || math.IsNaN(float64(row.Value.Least)) {
			return false
		} else {
			seen[name] = true
		}
	}
	return true
}
