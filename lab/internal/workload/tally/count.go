package tally

import (
	"maps"
	"math"
	"sort"
	"time"
)

// millis are milliseconds, with a fraction.
type millis = float64

// Millis is a duration as milliseconds.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Count has the results of the requests of one kind.
type Count struct {
	Sent     uint64 `json:"sent"`     // whose outcome is known, and counted
	Failed   uint64 `json:"failed"`   // not as expected: no answer, a wrong one, or for a denied path any
	Late     uint64 `json:"late"`     // as expected, but after more than half a second
	InFlight uint64 `json:"inFlight"` // outcome not yet counted

	// A gap lasts from sending the first request that failed or was late to sending the next that was fine.
	Gaps         uint64    `json:"gaps"`
	GapLengths   Histogram `json:"gapLengths,omitempty"`
	LongestGap   millis    `json:"longestGapMs"`
	LongestGapAt time.Time `json:"longestGapAt,omitzero"`

	Fine    Spans     `json:"fine,omitempty"` // when requests were fine
	WarmUp  millis    `json:"warmUpMs"`       // from the start until the first request that was fine; not counted above
	P50     millis    `json:"p50Ms"`
	P99     millis    `json:"p99Ms"`
	Slowest millis    `json:"slowestMs"`
	Latency Histogram `json:"latency"`
	Errors  []Error   `json:"errors,omitempty"` // the first ones
}

// Error is one request that failed.
type Error struct {
	At      time.Time `json:"at"`
	After   millis    `json:"afterMs"` // when it was known
	Target  string    `json:"target"`
	Message string    `json:"message"`
}

// Histogram counts durations in buckets: bucket b holds those below 2^(b/4) times 0.1 ms.
type Histogram map[int]uint64

func (h Histogram) add(d time.Duration) { h[bucket(Millis(d))]++ }

func (h Histogram) clone() Histogram { return maps.Clone(h) }

// merge is the sum of two histograms.
func (h Histogram) merge(o Histogram) Histogram {
	sum := Histogram{}
	for _, one := range []Histogram{h, o} {
		for bucket, n := range one {
			sum[bucket] += n
		}
	}
	return sum
}

func bucket(ms millis) int { return max(0, int(math.Ceil(4*math.Log2(ms/0.1)))) }

// Quantile is an upper bound of the q-quantile, at most a fifth too high, in milliseconds.
func (h Histogram) Quantile(q float64) float64 {
	var total uint64
	var keys []int
	for b, n := range h {
		total += n
		keys = append(keys, b)
	}
	sort.Ints(keys)
	var seen uint64
	for _, b := range keys {
		seen += h[b]
		if float64(seen) >= q*float64(total) {
			return 0.1 * math.Pow(2, float64(b)/4)
		}
	}
	return 0
}

// P99Gap is the 99th percentile of the gaps, in milliseconds, at most a fifth too high.
func (c Count) P99Gap() float64 { return min(c.GapLengths.Quantile(0.99), c.LongestGap) }

// quantiles fills in what is derived from the histogram.
func (c *Count) quantiles() {
	c.P50 = min(c.Latency.Quantile(0.5), c.Slowest)
	c.P99 = min(c.Latency.Quantile(0.99), c.Slowest)
}

// Merge is the sum of two counts of one kind.
func Merge(a, b Count) Count {
	sum := a
	sum.Sent += b.Sent
	sum.Failed += b.Failed
	sum.Late += b.Late
	sum.InFlight += b.InFlight
	sum.Gaps += b.Gaps
	if b.LongestGap > sum.LongestGap {
		sum.LongestGap, sum.LongestGapAt = b.LongestGap, b.LongestGapAt
	}
	sum.WarmUp = max(a.WarmUp, b.WarmUp)
	sum.Slowest = max(a.Slowest, b.Slowest)
	sum.Latency = a.Latency.merge(b.Latency)
	sum.GapLengths = a.GapLengths.merge(b.GapLengths)
	sum.Fine = a.Fine.union(b.Fine)
	sum.quantiles()
	sum.Errors = append(append([]Error(nil), a.Errors...), b.Errors...)
	sort.SliceStable(sum.Errors, func(i, j int) bool { return sum.Errors[i].At.Before(sum.Errors[j].At) })
	if len(sum.Errors) > maxErrors {
		sum.Errors = sum.Errors[:maxErrors]
	}
	return sum
}
