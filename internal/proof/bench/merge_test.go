package bench

import (
	"strings"
	"testing"
	"time"
)

// TestMerge: the runs of both results count; another load is refused.
func TestMerge(t *testing.T) {
	of := func(values ...float64) *Result {
		r := &Result{Bounds: Bounds{Runs: len(values), Duration: time.Second, Rate: 40, Megabits: 10},
			Tasks: []Task{{Kind: Stream, Path: TwoNodes, Streams: 1, Rate: 10}}}
		for i, value := range values {
			r.Samples = append(r.Samples, Sample{Run: i + 1, Value: value})
		}
		r.Rows = Rows(r.Tasks, r.Samples)
		return r
	}
	all, more := of(3, 5), of(9)
	more.Stopped, more.Bounds.KeepGoing, more.Bounds.PolicyRules = "it was interrupted", true, []int{}
	if err := all.Merge(more); err != nil {
		t.Fatal(err)
	}
	if row := all.Rows[0]; row.Runs != 3 || row.Value != (Spread{5, 3, 9}) || all.Samples[2].Run != 3 ||
		all.Stopped != "it was interrupted" {
		t.Errorf("%+v", all)
	}
	for says, change := range map[string]func(*Result){
		"the load differs from the first file's: --duration 1s, --rate 50": func(r *Result) { r.Bounds.Rate = 50 },
		"the load differs from the first file's: --duration 2s":            func(r *Result) { r.Bounds.Duration *= 2 },
		"--policy-rules [10]":                         func(r *Result) { r.Bounds.PolicyRules = []int{10} },
		"it has 0 measurements, the first file has 1": func(r *Result) { r.Tasks = nil },
		"is pod to host, two nodes, TCP, 1 stream, and not pod to pod, two nodes": func(r *Result) {
			r.Tasks[0].Path = ToHost
		},
	} {
		other := of(1)
		change(other)
		if err := all.Merge(other); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
