package tally

import (
	"errors"
	"testing"
	"time"
)

// at is a time so many milliseconds after the beginning.
func at(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }

func fine(ms int) Outcome { return Outcome{Sent: at(ms), Took: time.Millisecond} }

func failed(ms int) Outcome {
	return Outcome{Sent: at(ms), Took: 2 * time.Second, Err: errors.New("no answer"), Target: "web"}
}

func slow(ms int) Outcome { return Outcome{Sent: at(ms), Took: time.Second} }

func TestGaps(t *testing.T) {
	for _, test := range []struct {
		name          string
		outcomes      []Outcome
		failed, late  uint64
		gaps          uint64
		longest, from float64 // milliseconds
	}{
		{name: "nothing", outcomes: nil},
		{name: "all fine", outcomes: []Outcome{fine(0), fine(10), fine(20)}},
		{name: "one failed", outcomes: []Outcome{fine(0), failed(10), fine(20)}, failed: 1,
			gaps: 1, longest: 10, from: 10},
		{name: "a late answer counts from when it was sent", outcomes: []Outcome{fine(0), slow(10), fine(30)}, late: 1,
			gaps: 1, longest: 20, from: 10},
		{name: "failed and late make one gap", outcomes: []Outcome{failed(0), slow(10), failed(20), fine(50)},
			failed: 2, late: 1, gaps: 1, longest: 50},
		{name: "the longest of two", outcomes: []Outcome{failed(0), fine(10), failed(20), failed(40), fine(60)},
			failed: 3, gaps: 2, longest: 40, from: 20},
		{name: "one that has not ended", outcomes: []Outcome{fine(0), failed(10), failed(20)}, failed: 2,
			gaps: 1, longest: 990, from: 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			tally := New()
			for _, o := range test.outcomes {
				tally.Done(tally.Send(), o)
			}
			c := tally.Count(at(1000))
			if c.Sent != uint64(len(test.outcomes)) || c.Failed != test.failed || c.Late != test.late {
				t.Errorf("counted sent %d, failed %d, late %d; want %d, %d, %d",
					c.Sent, c.Failed, c.Late, len(test.outcomes), test.failed, test.late)
			}
			if c.Gaps != test.gaps || c.LongestGap != test.longest {
				t.Errorf("%d gaps, the longest %v ms; want %d, %v ms", c.Gaps, c.LongestGap, test.gaps, test.longest)
			}
			if test.gaps > 0 && Millis(c.LongestGapAt.Sub(at(0))) != test.from {
				t.Errorf("longest gap from %v, want from %v ms", c.LongestGapAt, test.from)
			}
		})
	}
}

func TestOutcomesCountInTheOrderOfSending(t *testing.T) {
	tally := New()
	first, second, third := tally.Send(), tally.Send(), tally.Send()
	tally.Done(third, fine(20))
	tally.Done(second, fine(10))
	if c := tally.Count(at(30)); c.Sent != 0 || c.InFlight != 3 {
		t.Errorf("before the first outcome: sent %d, in flight %d; want 0, 3", c.Sent, c.InFlight)
	}
	tally.Done(first, failed(0))
	c := tally.Count(at(2000))
	if c.Sent != 3 || c.InFlight != 0 {
		t.Errorf("sent %d, in flight %d; want 3, 0", c.Sent, c.InFlight)
	}
	if c.LongestGap != 10 {
		t.Errorf("the gap is %v ms long; want 10, up to sending the next that was fine", c.LongestGap)
	}
}

func TestSum(t *testing.T) {
	one, two := New(), New()
	one.Done(one.Send(), fine(0))
	one.Done(one.Send(), failed(10))
	one.Done(one.Send(), fine(40))
	two.Done(two.Send(), failed(5))
	two.Done(two.Send(), fine(15))
	sum := Sum([]Summary{
		{Final: true, Kinds: map[string]Count{"http": one.Count(at(50))}},
		{Final: false, Kinds: map[string]Count{"http": two.Count(at(50)), "udp": two.Count(at(50))}},
	})
	if sum.Sent() != 7 || sum.Failed() != 3 {
		t.Errorf("sent %d, failed %d; want 7, 3", sum.Sent(), sum.Failed())
	}
	if sum.Final {
		t.Error("the sum is final although one of the two still counts")
	}
	http := sum.Kinds["http"]
	if http.LongestGap != 30 || http.Gaps != 2 {
		t.Errorf("http: %d gaps, the longest %v ms; want 2, 30 ms", http.Gaps, http.LongestGap)
	}
	if len(http.Errors) != 2 || !http.Errors[0].At.Equal(at(5)) {
		t.Errorf("errors are %v; want both, the earlier first", http.Errors)
	}
}

func TestP99Gap(t *testing.T) {
	tally := New()
	for i := range 100 { // 100 gaps of 10 ms, and one of 4 s
		tally.Done(tally.Send(), failed(100*i))
		tally.Done(tally.Send(), fine(100*i+10))
	}
	tally.Done(tally.Send(), failed(20000))
	tally.Done(tally.Send(), fine(24000))
	c := tally.Count(at(30000))
	if c.LongestGap != 4000 {
		t.Errorf("the longest gap is %v ms, want 4000", c.LongestGap)
	}
	for name, count := range map[string]Count{"alone": c, "merged": Merge(c, c)} {
		if got := count.P99Gap(); got < 10 || got > 12 {
			t.Errorf("%s: the 99th percentile of the gaps is %v ms; want 10, or at most a fifth more", name, got)
		}
	}
	if got := (Count{}).P99Gap(); got != 0 {
		t.Errorf("without a gap the percentile is %v, want 0", got)
	}
}

func TestQuantile(t *testing.T) {
	h := Histogram{}
	for ms := 1; ms <= 100; ms++ {
		h.add(time.Duration(ms) * time.Millisecond)
	}
	for q, want := range map[float64]float64{0.5: 50, 0.99: 99} {
		if got := h.Quantile(q); got < want || got > 1.2*want {
			t.Errorf("the %v-quantile is %v ms; want %v ms, or at most a fifth more", q, got, want)
		}
	}
	if got := (Histogram{}).Quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v; want 0", got)
	}
}
