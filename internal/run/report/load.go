package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// Load is what the network carried before and after the change, by the same load on the same nodes.
type Load struct {
	// Before and After are when the measurements began; empty if there was none.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Nodes are the client's and the other one.
	Nodes   []string           `json:"nodes"`
	Figures []bench.Difference `json:"figures"`
	// ByChance is how many figures are expected to be worse or better although nothing changed.
	ByChance float64 `json:"byChance"`
	// Lost are measurements that lost more operations after the change than before, one sentence each.
	Lost []string `json:"lost,omitempty"`
	// Notes are further remarks, one sentence each.
	Notes []string `json:"notes,omitempty"`
}

// load is nil if nothing was measured.
func load(p bench.Pair) *Load {
	if p.Before == nil && p.After == nil {
		return nil
	}
	l := &Load{Figures: p.Differences(), ByChance: p.ByChance(), Nodes: []string{}}
	for _, one := range []struct {
		result *bench.Result
		began  *string
		when   string
	}{{p.Before, &l.Before, "before"}, {p.After, &l.After, "after"}} {
		switch r := one.result; {
		case r == nil:
			l.Notes = append(l.Notes, "The load was not measured "+one.when+" the change.")
		default:
			*one.began = r.Began
			if r.Stopped != "" {
				l.Notes = append(l.Notes, fmt.Sprintf("The load %s the change was stopped: %s.", one.when, r.Stopped))
			}
			l.Nodes = append(l.Nodes, r.Client)
			if r.Other != "" {
				l.Nodes = append(l.Nodes, r.Other)
			}
		}
	}
	slices.Sort(l.Nodes)
	l.Nodes = slices.Compact(l.Nodes)
	l.Lost = p.MoreLost()
	return l
}

// LoadText sums a load before and after a change up, with a line for each figure that is worse.
func LoadText(p bench.Pair) string {
	l := load(p)
	if l == nil {
		return "no load was measured"
	}
	return strings.Join(append([]string{"load: " + l.Text()}, l.says()...), "\n")
}

// of are the figures that shifted so.
func (l *Load) of(is bench.Shift) []bench.Difference {
	return slices.DeleteFunc(slices.Clone(l.Figures), func(d bench.Difference) bool { return d.Is != is })
}

// Text sums the figures up in one line.
func (l *Load) Text() string {
	if len(l.Figures) == 0 {
		return "no figure was measured both before and after"
	}
	text := fmt.Sprintf("%s before and after: %d worse, %d better, %d within the spread of the runs",
		countOf(int64(len(l.Figures)), "figure"), len(l.of(bench.Worse)), len(l.of(bench.Better)),
		len(l.of(bench.Same)))
	if unknown := len(l.of(bench.Unknown)); unknown > 0 {
		text += fmt.Sprintf(", %d not known", unknown)
	}
	if n := math.Round(l.ByChance); n >= 1 {
		text += fmt.Sprintf("; with so few runs, about %.0f would be worse or better by chance", n)
	}
	return text
}

// says are the remarks about the load for the verdict.
func (l *Load) says() []string {
	if l == nil {
		return nil
	}
	var says []string
	for _, d := range l.of(bench.Worse) {
		says = append(says, "Under load, worse after the change: "+d.String()+".")
	}
	return slices.Concat(says, l.Lost, l.Notes)
}
