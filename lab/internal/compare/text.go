package compare

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// words are what the comparison says, and what it cannot say.
func (c *Comparison) words() []string {
	words := c.losses()
	for _, run := range c.FailedRuns() {
		if run.Failed != "" {
			words = append(words, fmt.Sprintf("%s failed in round %d: %s", run.Network, run.Round, run.Failed))
		}
		for _, row := range run.missing {
			words = append(words, fmt.Sprintf("%s, round %d, %s", run.Network, run.Round, row))
		}
	}
	words = append(words, fmt.Sprintf("Each network ran in a cluster of its own with %d nodes. All clusters, the "+
		"load and the probes shared %d processors and one kernel, and no packet crossed a real link. Compare the "+
		"ratios between networks in this run, and no figure with one of another run or machine.", c.Nodes, c.CPUs),
		"In each round every network was measured once, and the order rotated from round to round. Meanwhile the "+
			"other clusters ran without load.")
	if c.Rounds == 1 {
		words = append(words, "One round has no spread: whether another round would differ is not known.")
	} else {
		words = append(words, fmt.Sprintf("Figures are medians of %d rounds, with the least and the greatest in "+
			"brackets; losses are added up. Where the brackets of two networks overlap, this run shows no difference. "+
			"With so few rounds, brackets may also differ by chance.", c.Rounds))
	}
	if c.any(func(l Line, cell Cell) bool { return cell.Short }) {
		words = append(words, "*: less was carried than was offered. The network was full, or the processors at its "+
			"ends, which it uses too.")
	}
	if c.any(func(l Line, cell Cell) bool {
		return !l.lost && (l.Figure == megabits || l.Figure == "/s") && !cell.Short && cell.Failed < cell.rounds
	}) {
		words = append(words, "A rate without * is the rate that was offered: the network may carry more. Offer more "+
			"with --throughput and --rate.")
	}
	if slices.ContainsFunc(c.Drops, func(d Drop) bool { return whole(d.Counter) }) {
		words = append(words, "Counters of softnet are the whole machine's: another cluster may have caused the drops.")
	}
	for _, network := range c.Networks {
		if network.With != "" {
			words = append(words, fmt.Sprintf("%s ran with %s.", network.Name, network.With))
		}
	}
	return words
}

// any reports whether any cell of the table is so.
func (c *Comparison) any(is func(Line, Cell) bool) bool {
	return slices.ContainsFunc(c.Lines, func(l Line) bool {
		return slices.ContainsFunc(l.Cells, func(cell Cell) bool { return is(l, cell) })
	})
}

// shown are the lines of the table: losses only if there are any.
func (c *Comparison) shown() []Line {
	return slices.DeleteFunc(slices.Clone(c.Lines), func(l Line) bool {
		return l.lost && !slices.ContainsFunc(l.Cells, func(cell Cell) bool { return cell.Median > 0 })
	})
}

// Title is what a line is called in the table, below its path.
func (l Line) Title() string { return l.Measured + ", " + l.Figure }

// text is a cell of the line as people read it.
func (l Line) text(cell Cell) string {
	number := count
	if strings.HasSuffix(l.Figure, " ms") {
		number = millis
	}
	switch {
	case cell.rounds == 0:
		return "-"
	case cell.Failed == cell.rounds:
		return "failed"
	}
	text := number(float64(cell.Median))
	switch {
	case l.lost && cell.Of > 0 && cell.Median > 0:
		text += fmt.Sprintf(" of %d", cell.Of)
	case !l.lost && cell.rounds-cell.Failed > 1 && cell.Least != cell.Most && !math.IsNaN(float64(cell.Median)):
		text += fmt.Sprintf(" [%s-%s]", number(float64(cell.Least)), number(float64(cell.Most)))
	}
	if cell.Short {
		text += " *"
	}
	if cell.Failed > 0 {
		text += fmt.Sprintf(" (failed in %d of %d)", cell.Failed, cell.rounds)
	}
	return text
}

// count writes a number of operations or Mbit/s, and millis a latency.
func count(f float64) string {
	if math.IsNaN(f) {
		return "-"
	}
	return fmt.Sprintf("%.0f", f)
}

func millis(f float64) string {
	switch {
	case math.IsNaN(f):
		return "-"
	case math.IsInf(f, 1):
		return ">1000"
	case f < 10:
		return fmt.Sprintf("%.2f", f)
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}

// WriteTable writes the comparison for people.
func (c *Comparison) WriteTable(w io.Writer) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	fmt.Fprint(table, "MEASURED")
	for _, network := range c.Networks {
		fmt.Fprint(table, "\t", network.Name)
	}
	fmt.Fprintln(table)
	path := ""
	for _, line := range c.shown() {
		if line.Path != path {
			path = line.Path
			fmt.Fprintln(table, path+strings.Repeat("\t", len(c.Networks)))
		}
		fmt.Fprint(table, "  ", line.Title())
		for _, cell := range line.Cells {
			fmt.Fprint(table, "\t", line.text(cell))
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	fmt.Fprintln(w)
	for _, words := range c.Says {
		if _, err := fmt.Fprintln(w, words); err != nil {
			return err
		}
	}
	return nil
}
