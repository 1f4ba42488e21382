package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// TestLeftOf: ranges are compared with themselves; those of other nodes, and those that went, are left out.
func TestLeftOf(t *testing.T) {
	before := []cluster.Addresses{
		{Network: "n", Range: "10.1.0.0/24", Node: "a", Usable: 253, Used: 3},
		{Network: "n", Range: "10.2.0.0/24", Node: "b", Usable: 253, Used: 300},
		{Network: "n", Range: "10.3.0.0/24", Node: "c", Usable: 253},
		{Network: "m", Range: "10.0.0.0/8", Usable: 1000, Used: 1},
		{Network: "gone", Range: "10.0.0.0/8", Usable: 1000},
	}
	after := []cluster.Addresses{before[3], before[2], before[1], before[0]}
	after[0].Used, after[3].Used = 5, 2
	want := []Left{{"n on a", "10.1.0.0/24", 253, 250, 251}, {"n on b", "10.2.0.0/24", 253, 0, 0},
		{"m", "10.0.0.0/8", 1000, 999, 995}}
	if got := LeftOf(before, after, "a", "b"); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := LeftOf(before, nil, "a"); got != nil {
		t.Errorf("%+v", got)
	}
	const text = "Addresses left for pods in 10.0.0.0/8 (m): 999 of 1000 before, 995 after the " +
		"benchmark's pods were removed"
	if want[2].String() != text {
		t.Error(want[2])
	}
}

// TestOverworked: what is busier than the bound stops the load, unless it is not known or not watched.
func TestOverworked(t *testing.T) {
	for _, c := range []struct {
		share, processors int
		busy              int64
		want              string
	}{
		{90, 2, 1_900_000, "its processors (2) were 95% busy for 1.0 s, by all programs (--max-cpu-share 90)"},
		{90, 2, 1_800_000, ""}, {90, 0, 1_900_000, ""}, {100, 2, 2_100_000, ""}, {0, 2, 2_000_000, ""},
		{1, 2, 30_000, "its processors (2) were 2% busy for 1.0 s, by all programs (--max-cpu-share 1)"},
		{90, 2, 9_000_000, "its processors (2) were 100% busy for 1.0 s, by all programs (--max-cpu-share 90)"},
	} {
		before := Limits{Processors: c.processors, Busy: 7e9}
		after := Limits{Processors: c.processors, Busy: 7e9 + c.busy}
		if got := (Plan{CPUShare: c.share}).Overworked(before, after, time.Second); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := (Plan{CPUShare: 1}).Overworked(Limits{Processors: 1}, Limits{Processors: 1, Busy: 9e9}, 0); got != "" {
		t.Error(got)
	}
}
