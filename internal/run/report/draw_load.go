package report

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// loadDrawing is a drawing of figures with their spreads, laid out: a row for each figure, from the least to the
// greatest of its runs, with the median as a mark.
type loadDrawing struct {
	Title                             string
	Width, Height, Left, Right, Names int
	Top, Bottom                       float64
	Ticks                             []tick
	Rows                              []loadRow
}

// loadRow is a line of the drawing: a heading if it has no boxes.
type loadRow struct {
	Y    float64
	Name string
	// Text is at the right end: the figures in words.
	Text  string
	Boxes []box
}

// loadLine is what is drawn in a row: several figures above each other.
type loadLine struct {
	path, name string
	values     []loadValue
}

type loadValue struct {
	label, tone string
	spread      bench.Spread
}

// The dimensions of the drawing.
const (
	loadLeft   = 300
	loadRight  = 150
	loadRow1   = 9 // the height of one figure
	loadMargin = 9
)

// newLoadDrawing lays lines out, on a logarithmic scale or on one from 0; nil if there is nothing to draw.
func newLoadDrawing(title, unit string, logarithmic bool, lines []loadLine) *loadDrawing {
	least, most := math.Inf(1), 0.0
	for _, line := range lines {
		for _, v := range line.values {
			if low := float64(v.spread.Least); low > 0 && !math.IsInf(low, 0) {
				least = min(least, low)
			}
			if high := float64(v.spread.Most); !math.IsNaN(high) {
				most = max(most, min(high, float64(bench.Timeout.Milliseconds())*pastEnd(unit)))
			}
		}
	}
	if math.IsInf(least, 0) || most <= 0 {
		return nil
	}
	d := &loadDrawing{Title: title, Width: drawWidth, Left: loadLeft, Right: drawWidth - loadRight,
		Names: loadLeft - 12, Top: axisHeight}
	x := d.axis(unit, logarithmic, least, most)
	y := d.Top
	for i, line := range lines {
		if i == 0 || lines[i-1].path != line.path {
			d.Rows = append(d.Rows, loadRow{Y: y + 16, Name: line.path})
			y += rowHeight
		}
		row := loadRow{Y: y + float64(len(line.values)*loadRow1)/2 + 4, Name: line.name}
		for _, v := range line.values {
			if math.IsNaN(float64(v.spread.Median)) {
				y += loadRow1
				continue
			}
			text := fmt.Sprintf("%s, %s, %s: %s %s", line.path, line.name, v.label, v.spread, unit)
			from, to, at := x(v.spread.Least), x(v.spread.Most), x(v.spread.Median)
			row.Boxes = append(row.Boxes,
				box{X: from, Y: y + 3, W: max(1, round1(to-from)), H: 2, Tone: v.tone, Text: text},
				box{X: round1(at - 2), Y: y, W: 4, H: 8, Tone: v.tone, Text: text})
			row.Text = cmp.Or(row.Text, v.spread.Median.String())
			if row.Text != v.spread.Median.String() && v.label != line.values[0].label {
				row.Text += " · " + v.spread.Median.String()
			}
			y += loadRow1
		}
		if len(row.Boxes) == 0 {
			row.Text = "not measured"
		}
		d.Rows = append(d.Rows, row)
		y += loadMargin
	}
	d.Bottom, d.Height = y, int(y)+4
	return d
}

// pastEnd is 1 for milliseconds, which end at the timeout, and no end for others.
func pastEnd(unit string) float64 {
	if unit == "ms" {
		return 1
	}
	return math.Inf(1)
}

// axis makes the ticks, and returns the scale.
func (d *loadDrawing) axis(unit string, logarithmic bool, least, most float64) func(bench.Figure) float64 {
	width := float64(d.Right - d.Left)
	place := func(share float64) float64 { return round1(float64(d.Left) + width*max(0, min(1, share))) }
	mark := func(v float64, at float64) {
		d.Ticks = append(d.Ticks, tick{at, strconv.FormatFloat(v, 'g', -1, 64) + " " + unit})
	}
	if logarithmic {
		low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
		high = max(high, low+1)
		for e := low; e <= high; e++ {
			mark(math.Pow(10, e), place((e-low)/(high-low)))
		}
		return func(v bench.Figure) float64 { return place((math.Log10(float64(v)) - low) / (high - low)) }
	}
	every := math.Pow(10, math.Floor(math.Log10(most)))
	if most/every < 3 {
		every /= 2
	}
	end := math.Ceil(most/every) * every
	for v := 0.0; v <= end; v += every {
		mark(v, place(v/end))
	}
	return func(v bench.Figure) float64 { return place(float64(v) / end) }
}

// resultDrawings draw one result: round trips at rest and under load, and throughput.
func resultDrawings(r *bench.Result) (all []*loadDrawing) {
	var trips, rates []loadLine
	for _, row := range r.Rows {
		under := loadLine{row.Path, "under " + row.Name, []loadValue{
			{"P50", "measured", row.UnderLoadP50.Millis()}, {"P99", "back", row.UnderLoadP99.Millis()}}}
		if row.Name == string(bench.RoundTrip) {
			under.name, under.values[0].spread, under.values[1].spread = "at rest", row.P50.Millis(), row.P99.Millis()
		}
		trips = append(trips, under)
		if row.Unit != "/s" {
			rates = append(rates, loadLine{row.Path, row.Name, []loadValue{{"rate", "measured", row.Value}}})
		}
	}
	for _, d := range []*loadDrawing{newLoadDrawing("Round trip at rest and under load", "ms", true, trips),
		newLoadDrawing("Throughput", "Mbit/s", false, rates)} {
		if d != nil {
			all = append(all, d)
		}
	}
	return all
}

// Drawings draw the figures before and after the change: latencies, and rates.
func (l *Load) Drawings() (all []*loadDrawing) {
	var units []string
	lines := map[string][]loadLine{}
	for _, d := range l.Figures {
		tone := map[bench.Shift]string{bench.Worse: "warn", bench.Better: "ok"}[d.Is]
		if lines[d.Unit] == nil {
			units = append(units, d.Unit)
		}
		lines[d.Unit] = append(lines[d.Unit], loadLine{d.Path, d.Name + ", " + d.Figure, []loadValue{
			{"before", "none", d.Before}, {"after", cmp.Or(tone, "measured"), d.After}}})
	}
	for _, unit := range units {
		title := map[string]string{"ms": "Latencies", "Mbit/s": "Throughput", "/s": "Rates"}[unit]
		if d := newLoadDrawing(title, unit, unit == "ms", lines[unit]); d != nil {
			all = append(all, d)
		}
	}
	return all
}
