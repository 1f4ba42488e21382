package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Moment is a line of the list in which losses are next to their causes: gaps that began together, a mark of a person,
// or what happened in the cluster.
type Moment struct {
	At time.Time `json:"at"`
	// Kind is "gap", "mark" or "event".
	Kind string `json:"kind"`
	Text string `json:"text"`
	// By is who set a mark.
	By string `json:"by,omitempty"`
	// Step is where in the run the first of the gaps began (Gap.Step), and Cause the first error that one of them had.
	Step  string `json:"step,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Undoing is Gap.Undoing of the first of the gaps.
	Undoing string `json:"-"`
	// Bad is false for gaps that may be those of the baseline, which lost probes.
	Bad bool `json:"-"`
}

// The kinds of moments.
const (
	MomentGap   = "gap"
	MomentMark  = "mark"
	MomentEvent = "event"
)

// together is how long after the end of one gap another one must begin to be of another moment.
const together = 2 * time.Second

// moments are in the order of their times; nil if the run observed nothing and has no marks, as then they would repeat
// the gaps.
func moments(in Input, gaps []Gap) []Moment {
	var all []Moment
	for _, r := range in.Records {
		if r.Event == engine.Marked {
			all = append(all, Moment{At: r.At, Kind: MomentMark, Text: engine.MarkOf(r), By: r.By})
		}
	}
	if len(all)+len(in.Looks) == 0 {
		return nil
	}
	for _, event := range in.Events {
		all = append(all, Moment{At: event.At, Kind: MomentEvent, Text: event.String()})
	}
	all = append(all, gapMoments(gaps)...)
	slices.SortStableFunc(all, func(a, b Moment) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(b.Kind, a.Kind)) })
	return all
}

// gapMoments sums up gaps that overlap, or follow each other closely. The gaps come in the order of their times.
func gapMoments(gaps []Gap) (all []Moment) {
	for len(gaps) > 0 {
		n, end := 1, endOfGap(gaps[0])
		for ; n < len(gaps) && !gaps[n].From.After(end.Add(together)); n++ {
			if e := endOfGap(gaps[n]); e.After(end) {
				end = e
			}
		}
		one := Moment{At: gaps[0].From, Kind: MomentGap, Text: gapsText(gaps[:n]), Step: gaps[0].Step,
			Undoing: gaps[0].Undoing}
		for _, gap := range gaps[:n] {
			one.Cause, one.Bad = cmp.Or(one.Cause, gap.Cause), one.Bad || gap.Denied
		}
		all = append(all, one)
		gaps = gaps[n:]
	}
	return all
}

// Losses are the gaps of an account, which need not be that of the model, as moments of the model's journal.
func (m Model) Losses(all loss.Account) []Moment {
	if m.history == nil {
		return nil
	}
	return m.judged(gapMoments(m.history.placed(all)))
}

// judged says which gaps are bad.
func (m *Model) judged(all []Moment) []Moment {
	for i := range all {
		all[i].Bad = all[i].Kind == MomentGap && (all[i].Bad || !m.compared || m.worse)
	}
	return all
}

func endOfGap(gap Gap) time.Time {
	return gap.From.Add(time.Duration(gap.Millis * float64(time.Millisecond)))
}

func gapsText(gaps []Gap) string {
	paths := map[string]bool{}
	var lost, leaked int64
	worst := gaps[0]
	for _, gap := range gaps {
		paths[gap.Path] = true
		if gap.Denied {
			leaked += gap.Probes
		} else {
			lost += gap.Probes
		}
		if gap.Millis > worst.Millis {
			worst = gap
		}
	}
	text := countOf(int64(len(paths)), "path")
	if lost > 0 {
		text += ", " + countOf(lost, "lost probe")
	}
	if leaked > 0 {
		text += ", " + countOf(leaked, "denied probe") + " answered"
	}
	return fmt.Sprintf("%s, longest %s from %s to %s", text, duration(worst.Millis), worst.Source, worst.Target)
}

// String is the moment in one line, without its time.
func (m Moment) String() string {
	switch m.Kind {
	case MomentMark:
		return fmt.Sprintf("mark: %s (%s)", m.Text, m.By)
	case MomentGap:
		return "gap: " + m.Text
	}
	return m.Text
}

// When is the time of a moment in UTC, with its day if the run took longer than one.
func (m Model) When(one Moment) string {
	if m.Run.End.Sub(m.Run.Begin) > 20*time.Hour {
		return one.At.UTC().Format(time.DateTime)
	}
	return clock(one.At)
}

// looksNote says how far the list of what happened can be complete.
func looksNote(in Input) []string {
	var list []string
	if n := len(in.Looks); n > 1 {
		list = append(list, fmt.Sprintf("The cluster was read in %s between %s and %s. Between these times, only "+
			"Kubernetes' Events that still existed at the next read are known.",
			countOf(int64(n), "period"), in.Looks[0].From.UTC().Format(time.DateTime),
			in.Looks[n-1].To.UTC().Format(time.DateTime)))
	}
	if in.EventsDropped > 0 {
		list = append(list, fmt.Sprintf("%s of the cluster were dropped, the oldest first, because there were too "+
			"many.",
			countOf(int64(in.EventsDropped), "event")))
	}
	return list
}
