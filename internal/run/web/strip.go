package web

import (
	"math"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// maxBins bounds the strip chart. When the run outgrows them, they become twice as wide.
const maxBins = 600

// firstWidth is the width of a bin at first, and maxWidth bounds it, whatever time a node's clock says.
const (
	firstWidth = time.Second
	maxWidth   = math.MaxInt64 / maxBins / 2 * time.Nanosecond
)

// Strip is the strip chart: for each class of paths, what happened in each span of time.
type Strip struct {
	StripHead
	// Cells are those in which something happened, ordered by class and bin.
	Cells []Cell
}

// StripHead says which spans and classes the cells are of.
type StripHead struct {
	Begin time.Time `json:"begin,omitzero"`
	// Width is the width of a bin in ms.
	Width   int64    `json:"width"`
	Classes []string `json:"classes"`
}

// Cell is one class in one bin.
type Cell struct {
	Class int `json:"c"`
	Bin   int `json:"b"`
	// Lost and Leaked count the probes of the gaps that began in the bin, and Gap is the longest of them, in ms.
	Lost   int64   `json:"l,omitempty"`
	Leaked int64   `json:"k,omitempty"`
	Gap    float64 `json:"g,omitempty"`
	// P50 and P99 are round trips in microseconds, of the results that came in the bin.
	P50 int64 `json:"p,omitempty"`
	P99 int64 `json:"q,omitempty"`
}

func compareCells(a, b Cell) int {
	if a.Class != b.Class {
		return a.Class - b.Class
	}
	return a.Bin - b.Bin
}

// since is what a viewer of an earlier strip lacks. Where cells have gone, such as those of a gap that is excused now,
// it is everything.
func (s Strip) since(before Strip) (*StripHead, []Cell) {
	var changed []Cell
	kept := 0
	for _, cell := range s.Cells {
		i, found := slices.BinarySearchFunc(before.Cells, cell, compareCells)
		if found {
			kept++
		}
		if !found || before.Cells[i] != cell {
			changed = append(changed, cell)
		}
	}
	if kept < len(before.Cells) || !s.Begin.Equal(before.Begin) || s.Width != before.Width ||
		!slices.Equal(s.Classes, before.Classes) {
		head := s.StripHead
		return &head, s.Cells
	}
	return nil, changed
}

func (s Strip) apply(head *StripHead, changed []Cell) Strip {
	if head != nil {
		s = Strip{StripHead: *head}
	}
	s.Cells = slices.Clone(s.Cells)
	for _, cell := range changed {
		i, found := slices.BinarySearchFunc(s.Cells, cell, compareCells)
		if found {
			s.Cells[i] = cell
			continue
		}
		s.Cells = slices.Insert(s.Cells, i, cell)
	}
	return s
}

// chart collects the strip chart.
type chart struct {
	begin   time.Time
	width   time.Duration
	classes []string
	pace    map[place]Cell // with round trips only
}

type place struct{ class, bin int }

// reach makes room for a time.
func (c *chart) reach(at time.Time) {
	if c.width == 0 {
		c.width, c.pace = firstWidth, map[place]Cell{}
	}
	for at.Sub(c.begin) >= maxBins*c.width && c.width < maxWidth {
		c.width *= 2
		wider := map[place]Cell{}
		for p, cell := range c.pace {
			p.bin /= 2
			known := wider[p]
			wider[p] = Cell{P50: max(known.P50, cell.P50), P99: max(known.P99, cell.P99)}
		}
		c.pace = wider
	}
}

func (c *chart) bin(at time.Time) int { return min(max(int(at.Sub(c.begin)/c.width), 0), maxBins-1) }

func (c *chart) class(name string) int {
	if i := slices.Index(c.classes, name); i >= 0 {
		return i
	}
	c.classes = append(c.classes, name)
	return len(c.classes) - 1
}

// paced records the round trips of a class.
func (c *chart) paced(name string, at time.Time, p50, p99 int64) {
	c.reach(at)
	p := place{c.class(name), c.bin(at)}
	known := c.pace[p]
	c.pace[p] = Cell{P50: max(known.P50, p50), P99: max(known.P99, p99)}
}

// strip is the chart with the gaps of an account. Gaps that began before the run are in its first bin.
func (c *chart) strip(account loss.Account) Strip {
	cells := map[place]Cell{}
	for _, p := range account {
		for _, gap := range p.Gaps {
			c.reach(gap.From)
		}
	}
	for p, cell := range c.pace {
		cells[p] = cell
	}
	for _, p := range account {
		for _, gap := range p.Gaps {
			at := place{c.class(className(p.Class, p.Denied)), c.bin(gap.From)}
			cell := cells[at]
			cell.Gap = max(cell.Gap, gap.Millis)
			if p.Denied {
				cell.Leaked += gap.Probes
			} else {
				cell.Lost += gap.Probes - gap.Excused
			}
			cells[at] = cell
		}
	}
	s := Strip{StripHead: StripHead{Begin: c.begin, Width: c.width.Milliseconds(),
		Classes: append([]string{}, c.classes...)}} // never null: the page reads its length
	for at, cell := range cells {
		cell.Class, cell.Bin = at.class, at.bin
		s.Cells = append(s.Cells, cell)
	}
	slices.SortFunc(s.Cells, compareCells)
	return s
}

// className names a class of paths for people; those that policy must deny are classes of their own.
func className(class string, denied bool) string {
	if denied && class != path.ClassDenied {
		return class + ", denied"
	}
	return class
}
