package report

import (
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/proof/loss"
)

// figure is one large number under the verdict. Tone is "ok", "warn", "bad" or "none" for no data.
type figure struct {
	Label, Value, Note, Tone string
}

// noData is shown where a number would be.
const noData = "no data"

func figures(m Model) []figure {
	return slices.Concat([]figure{requestsFigure(m), probesFigure(m), deniedFigure(m), gapFigure(m)}, newPodsFigures(m),
		samplesFigures(m.Samples), []figure{restartsFigure(m), tookFigure(m), residueFigure(m)})
}

func toneOf(bad bool) string {
	if bad {
		return "bad"
	}
	return "ok"
}

func requestsFigure(m Model) figure {
	if len(m.Traffic) == 0 {
		return figure{"Failed requests", noData, "there are no results of your own clients", "none"}
	}
	return figure{"Failed requests", number(m.Totals.Failed), "of " + number(m.Totals.Requests),
		toneOf(m.Totals.Failed > 0)}
}

func probesFigure(m Model) figure {
	t := m.Totals
	if t.Sent == 0 {
		return figure{"Lost probes", noData, "no path was measured", "none"}
	}
	tone := "ok"
	if t.Lost > 0 {
		tone = m.figureTone(max(t.ProbeGapMillis, 0.001))
	}
	return figure{"Lost probes", number(t.Lost),
		fmt.Sprintf("of %s on %s", number(t.Sent), countOf(int64(t.Paths), "path")), tone}
}

func deniedFigure(m Model) figure {
	t := m.Totals
	if t.DeniedSent == 0 && t.Leaked == 0 {
		return figure{"Denied answered", noData, "no denied path was measured", "none"}
	}
	return figure{"Denied answered", number(t.Leaked),
		fmt.Sprintf("of %s on %s", number(t.DeniedSent), countOf(int64(t.Denied), "path")), toneOf(t.Leaked > 0)}
}

func gapFigure(m Model) figure {
	t := m.Totals
	if t.Sent == 0 && len(m.Traffic) == 0 {
		return figure{"Longest gap", noData, "gaps were not measured", "none"}
	}
	note := "the gates allowed " + duration(m.Limit)
	switch {
	case m.compared:
		note = "compared with the baseline"
	case m.Limit == 0:
		note = "no gate names a limit"
	}
	if len(m.Traffic) > 0 {
		note += "; clients at most " + duration(longestWait(m.Traffic)) + " without an answer"
	}
	switch {
	case t.Sent == 0:
		return figure{"Longest gap", noData, note, "none"}
	case t.ProbeGapMillis == 0:
		return figure{"Longest gap", "none", note, "ok"}
	}
	tone := m.figureTone(t.ProbeGapMillis)
	if t.Lost == 0 && t.ProbeGapMillis <= m.Limit {
		tone = "ok"
	}
	return figure{"Longest gap", duration(t.ProbeGapMillis), note, tone}
}

// figureTone is the tone of a gap of the whole network. Where losses are compared with the baseline, only the verdict
// says whether it is bad.
func (m *Model) figureTone(ms float64) string {
	switch {
	case !m.compared:
		return gapTone(m.Limit, ms)
	case m.worse:
		return "bad"
	}
	return gapTone(ms, ms)
}

// gapTone is the tone of one gap. Where losses are compared with the baseline, it is bad only if more loss is proven
// and no gap of the baseline was as long.
func (m *Model) gapTone(ms float64) string {
	if m.compared && (!m.worse || ms <= m.accepted.LongestGapMillis) {
		return gapTone(ms, ms)
	}
	return gapTone(m.Limit, ms)
}

// lossTone is the tone of what a part of the network lost. Where losses are compared with the baseline, it is bad only
// if more loss is proven, and the part lost a larger share than in the baseline, or a longer gap. of names what the
// baseline counted of the part (loss.Contrast): of several names the one that lost most, of none the whole network.
func (m *Model) lossTone(sent, lost int64, worst float64, of ...string) string {
	if !m.compared || !m.worse {
		return m.gapTone(worst)
	}
	before, found := loss.Counts{}, false
	for _, name := range of {
		one, known := m.acceptedOf[name]
		if known && (!found || one.Lost*before.Sent > before.Lost*one.Sent) {
			before, found = one, true
		}
	}
	if !found {
		before = loss.Counts{Sent: m.accepted.Sent, Lost: m.accepted.Lost}
	}
	if lost*before.Sent > before.Lost*sent {
		return "bad"
	}
	return m.gapTone(worst)
}

// rowTone is the tone of a row of a table.
func (m *Model) rowTone(row any) string {
	switch row := row.(type) {
	case Class:
		return m.lossTone(row.Sent, row.Lost, row.Worst, "class "+row.Name)
	case Node:
		return m.lossTone(row.Sent, row.Lost, row.Worst, "node "+row.Name)
	case Gate:
		return m.lossTone(row.Sent, row.Lost, row.Worst)
	}
	return "bad"
}

func restartsFigure(m Model) figure {
	t := m.Totals
	if len(m.Workloads) == 0 {
		return figure{"Restarts", noData, "pods were not counted", "none"}
	}
	return figure{"Restarts", number(int64(t.Restarts)), fmt.Sprintf("%s, %s recreated", countOf(int64(t.Pods), "pod"),
		number(int64(t.Evicted))), toneOf(t.Restarts > 0)}
}

func tookFigure(m Model) figure {
	if m.Run.Begin.IsZero() {
		return figure{"Time taken", noData, "there is no journal", "none"}
	}
	note := fmt.Sprintf("%d of %s done", m.Run.StepsDone, countOf(int64(m.Run.StepsTotal), "step"))
	if m.Run.EstimateMillis > 0 {
		note = "estimated " + duration(float64(m.Run.EstimateMillis))
	}
	return figure{"Time taken", duration(float64(m.Run.Millis)), note, "plain"}
}

func residueFigure(m Model) figure {
	r := m.Residue
	if r.NodesAfter == 0 && m.Run.Outcome != Done && m.Run.Outcome != NotStarted {
		return figure{"Residue", "–", "the run did not get that far", "none"}
	}
	if m.keeps && r.NodesAfter == 0 {
		return figure{"Residue", "–", "no network was removed", "none"}
	}
	if r.NodesAfter == 0 {
		return figure{"Residue left", noData, "not inventoried after the run", "none"}
	}
	tone := "ok"
	if m.Run.Outcome != Done {
		return figure{"Residue", number(int64(r.After)), "not cleaned: the run did not get there", "plain"}
	}
	if r.After > 0 {
		tone = "warn"
	}
	return figure{"Residue left", number(int64(r.After)), "of " + countOf(int64(r.Before), "thing"), tone}
}
