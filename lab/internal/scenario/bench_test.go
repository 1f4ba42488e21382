package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// spans are from second to second after the beginning.
func spans(seconds ...int) (s tally.Spans) {
	for i := 0; i < len(seconds); i += 2 {
		s = append(s, tally.Span{From: time.Unix(int64(seconds[i]), 0), To: time.Unix(int64(seconds[i+1]), 0)})
	}
	return s
}

func TestCost(t *testing.T) {
	o := cost(tally.Summary{Updated: time.Unix(101, 0), Kinds: map[string]tally.Count{
		"http": {Sent: 1000, Failed: 7, LongestGap: 300, GapLengths: tally.Histogram{40: 9},
			Fine: spans(0, 40, 60, 100)},
		"host-udp": {Sent: 500, Failed: 2, LongestGap: 900, GapLengths: tally.Histogram{40: 1},
			Fine: spans(0, 30, 35, 100)},
		"denied-udp": {Sent: 200, Failed: 3, LongestGap: 5000, GapLengths: tally.Histogram{60: 50}},
	}}, time.Unix(10, 0))
	if o.Sent != 1500 || o.Failed != 9 || o.Denied != 200 || o.Leaked != 3 {
		t.Errorf("%d of %d failed and %d of %d got through; want 9 of 1500 and 3 of 200",
			o.Failed, o.Sent, o.Leaked, o.Denied)
	}
	if o.FailedHosts != 2 {
		t.Errorf("%d of the failed came from hosts, want 2", o.FailedHosts)
	}
	if o.LongestGap != 900 || o.P99Gap > 900 || o.P99Gap == 0 {
		t.Errorf("the longest gap is %v ms and the 99th percentile %v ms; a denied path has no part in either",
			o.LongestGap, o.P99Gap)
	}
	if o.Outage != 20000 {
		t.Errorf("the outage is %v ms; nobody was served by HTTP for 20 s", o.Outage)
	}
}

func TestInOneLine(t *testing.T) {
	line, err := inOneLine([]byte(
		`{"totals": {"pods": 20, "evicted": 1, "restarts": 2, "requests": 586159, "failed": 3, "leaked": 1, "longestGapMillis": 763, "probeGapMillis": 92.6}}`))
	if want := "20 pods, 1 recreated, 2 restarts, 3 failed requests of 586159, 1 denied one answered, longest gap " +
		"on a path 93 ms"; line != want || err != nil {
		t.Errorf("%q, %v; want %q", line, err, want)
	}
	if line, err := inOneLine([]byte("error: no")); err == nil {
		t.Errorf("what is no report gives %q", line)
	}
}

func TestNoOutage(t *testing.T) {
	o := cost(tally.Summary{Updated: time.Unix(101, 0), Kinds: map[string]tally.Count{"http": {Fine: spans(0, 100)}}},
		time.Unix(10, 0))
	if o.Outage != 0 {
		t.Errorf("an outage of %v ms, but the clients had only not recorded their last second", o.Outage)
	}
}

func TestMade(t *testing.T) {
	const before = "one 0\ntwo 0\nthree 1\n"
	const after = "one 0\ntwo 0\nfour\nthree 1\nfour 0\none 2\nfour 1\nfour 1\nfive 0 3\n"
	if created, restarted := made(before, after); created != 2 || restarted != 6 {
		t.Errorf("%d pods made and %d containers restarted; want 2 (four, five) and 6 (one twice, four once, five "+
			"three times)", created, restarted)
	}
}

func TestMedians(t *testing.T) {
	outcomes := []Outcome{
		{Swap: "b", Name: "other", Run: 1, Failed: 10, Wall: 60},
		{Swap: "a", Name: "usual", Run: 1, Failed: 900, Problem: "never became steady"},
		{Swap: "b", Name: "other", Run: 2, Failed: 40, Wall: 90},
		{Swap: "b", Name: "other", Run: 3, Failed: 20, Wall: 1000},
	}
	for value, want := range map[float64]float64{
		median(outcomes[:1], func(o Outcome) float64 { return o.Wall }): 60,
		median(outcomes, func(o Outcome) float64 { return o.Wall }):     75,
	} {
		if value != want {
			t.Errorf("the median is %v, want %v", value, want)
		}
	}
	var out strings.Builder
	if err := printMedians(&out, outcomes); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range [][]string{
		{"failed", "wall per node"},
		{"(b) other", " 20 ", " 90 s", "3 of 3"},
		{"(a) usual", " 900 ", "0 of 1"},
		{"(a), run 1: never became steady"},
	} {
		for _, text := range want {
			if !strings.Contains(lines[i], text) {
				t.Errorf("%q is not in line %d:\n%s", text, i+1, out.String())
			}
		}
	}
}

// TestKeys: what there is to compare has names of its own, and something to do.
func TestKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range append(Swaps(), Pairs()...) {
		if seen[s.Key] || s.Name == "" || s.Do == nil {
			t.Errorf("%q (%s) is there twice, or does nothing", s.Key, s.Name)
		}
		seen[s.Key] = true
	}
}

// TestStartedSince: a container that the API shows as it was before a restart has not started since.
func TestStartedSince(t *testing.T) {
	off := time.Date(2026, 11, 28, 12, 0, 0, 500e6, time.UTC)
	for lines, want := range map[string]bool{
		"true 2026-11-28T12:00:00Z\n":                            true, // the API has no fractions
		"true 2026-11-28T12:00:09Z\ntrue 2026-11-28T12:00:10Z\n": true,
		"true 2026-11-28T11:59:59Z\n":                            false,
		"true 2026-11-28T12:00:09Z\ntrue 2026-11-28T11:00:00Z\n": false,
		"false 2026-11-28T12:00:09Z\n":                           false,
		"false \n":                                               false,
		"":                                                       false,
	} {
		if got := startedSince(lines, off); got != want {
			t.Errorf("%q: %t", lines, got)
		}
	}
}
