package bench

import (
	"encoding/json"
	"fmt"
	"math"
)

// Shift says how a figure differs after a change.
type Shift string

// The shifts. A figure is worse or better only if the ranges of all runs before and after do not touch.
const (
	Worse   Shift = "worse"
	Better  Shift = "better"
	Same    Shift = "same"
	Unknown Shift = "unknown" // it was not measured before and after, or the spread is not known
)

// Difference is one figure of one measurement, before and after a change.
type Difference struct {
	Path string `json:"path"`
	Name string `json:"measured"`
	// Figure is "rate", or the rank of a latency: "P50", "P99", "P99 of probes under it".
	Figure string `json:"figure"`
	// Unit is "Mbit/s", "/s" or "ms".
	Unit   string `json:"unit"`
	Before Spread `json:"before"`
	After  Spread `json:"after"`
	Is     Shift  `json:"is"`

	chance float64 // that it is worse or better although nothing changed
}

// Pair are the results of the same load before and after a change. Either may be nil: it was not measured.
type Pair struct{ Before, After *Result }

// Read takes a result from its JSON. The rows are computed again: JSON has no number for a latency above Timeout.
func Read(data []byte) (*Result, error) {
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("result of a benchmark: %w", err)
	}
	for _, s := range r.Samples {
		if s.Task < 0 || s.Task >= len(r.Tasks) {
			return nil, fmt.Errorf("result of a benchmark: there is no task %d", s.Task)
		}
	}
	r.Rows = Rows(r.Tasks, r.Samples)
	return &r, nil
}

// Differences compares every figure that was measured before or after. A rate that is only what was offered says
// nothing, and is left out.
func (p Pair) Differences() []Difference {
	if p.Before == nil || p.After == nil {
		return nil
	}
	var all []Difference
	for _, before := range p.Before.Rows {
		for _, after := range p.After.Rows {
			if after.Path == before.Path && after.Name == before.Name {
				all = append(all, differences(before, after)...)
			}
		}
	}
	return all
}

func differences(before, after Row) (all []Difference) {
	runs, orders := min(before.Runs, after.Runs), 1.0 // of the runs before and after
	for i := 1; i <= after.Runs; i++ {
		orders = orders * float64(before.Runs+i) / float64(i)
	}
	add := func(figure, unit string, b, a Spread, divisor float64, higher bool) {
		d := Difference{Path: before.Path, Name: before.Name, Figure: figure, Unit: unit, Before: b.over(divisor),
			After: a.over(divisor), Is: shift(b, a, runs, higher)}
		if d.Is != Unknown {
			d.chance = 2 / orders
		}
		all = append(all, d)
	}
	if before.Short || after.Short {
		add("rate", before.Unit, before.Value, after.Value, 1, true)
	}
	if before.P50.known() || after.P50.known() {
		add("P50", "ms", before.P50, after.P50, 1000, false)
		add("P99", "ms", before.P99, after.P99, 1000, false)
	}
	if before.UnderLoadSent > 0 || after.UnderLoadSent > 0 {
		add("P99 of probes under it", "ms", before.UnderLoadP99, after.UnderLoadP99, 1000, false)
	}
	return all
}

func (s Spread) over(divisor float64) Spread {
	return Spread{s.Median / Figure(divisor), s.Least / Figure(divisor), s.Most / Figure(divisor)}
}

// shift compares the ranges of all runs. One run has no range.
func shift(before, after Spread, runs int, higherIsBetter bool) Shift {
	if !before.known() || !after.known() || runs < 2 {
		return Unknown
	}
	switch above, below := after.Least > before.Most, after.Most < before.Least; {
	case above == below:
		return Same
	case above == higherIsBetter:
		return Better
	}
	return Worse
}

// ByChance is how many of the differences are expected to be worse or better although nothing changed: of n runs before
// and m after, all of one side are above all of the other in 2 of (n+m choose n) orders.
func (p Pair) ByChance() (expected float64) {
	for _, d := range p.Differences() {
		expected += d.chance
	}
	return expected
}

// String is the difference on one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s, %s, %s: %s -> %s %s", d.Path, d.Name, d.Figure, d.Before, d.After, d.Unit)
}

// String is the median, with the least and the greatest in brackets; "-" if it is not known.
func (s Spread) String() string {
	switch {
	case !s.known():
		return "-"
	case s.Least == s.Most:
		return s.Median.String()
	}
	return fmt.Sprintf("%s [%s-%s]", s.Median, s.Least, s.Most)
}

// String has the significant digits.
func (f Figure) String() string {
	switch v := float64(f); {
	case math.IsInf(v, 1):
		return fmt.Sprintf(">%d", Timeout.Milliseconds())
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

// MoreLost says which measurements lost a greater share of their operations after the change, a sentence each.
func (p Pair) MoreLost() (all []string) {
	if p.Before == nil || p.After == nil {
		return nil
	}
	for _, before := range p.Before.Rows {
		for _, after := range p.After.Rows {
			if after.Path != before.Path || after.Name != before.Name {
				continue
			}
			if after.Lost*before.Sent > before.Lost*after.Sent {
				all = append(all, fmt.Sprintf("%s, %s: %s were lost before the change, %s after it.", before.Path,
					before.Name, of(before.Lost, before.Sent), of(after.Lost, after.Sent)))
			}
		}
	}
	return all
}
