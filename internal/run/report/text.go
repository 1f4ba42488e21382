package report

import (
	"fmt"
	"strings"
	"time"

	paths "github.com/theseus-cni/theseus/internal/proof/path"
)

// maxListed is how many incidents, notes and missing things the summary lists; the page has them all.
const maxListed = 3

// maxMoments is how many moments the summary lists: the latest.
const maxMoments = 8

// Text is the report for a terminal: the verdict first, about fifteen lines, no colour.
func Text(m Model) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", m.Verdict.Title, m.Verdict.Line)
	if m.Verdict.Why != "" {
		fmt.Fprintf(&b, "cause: %s\n", m.Verdict.Why)
	}
	if m.Verdict.Next != "" {
		fmt.Fprintf(&b, "next: %s\n", m.Verdict.Next)
	}
	b.WriteString("\n")
	say := func(label, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-10s%s\n", label, text)
		}
	}
	say("change", changeText(m))
	say("run", runText(m))
	say("measured", measuredText(m))
	say("paths", pathsText(m))
	say("outside", outsideText(m))
	say("denied", deniedText(m))
	say("new pods", m.NewPods.Text())
	say("samples", m.Samples.Text())
	say("traffic", trafficText(m))
	if m.Load != nil {
		say("load", m.Load.Text())
	}
	say("pods", podsText(m))
	say("moved", movesText(m))
	say("gates", gatesText(m))
	say("residue", residueText(m))
	say("unseen", unseenText(m))
	worst, _ := worstIncidents(m.Incidents, maxListed)
	for _, in := range worst {
		say("gaps", incidentText(in))
	}
	recent := m.Moments[max(0, len(m.Moments)-maxMoments):]
	if n := len(m.Moments) - len(recent); n > 0 {
		say("timeline", fmt.Sprintf("%d earlier lines are in the report", n))
	}
	for _, one := range recent {
		say("timeline", m.When(one)+" "+one.String())
	}
	listed(say, "missing", m.Verdict.Missing)
	listed(say, "note", m.Verdict.Notes)
	return b.String()
}

func listed(say func(label, text string), label string, texts []string) {
	for i, text := range texts {
		if i == maxListed {
			say(label, fmt.Sprintf("and %d more in the report", len(texts)-i))
			return
		}
		say(label, text)
	}
}

func changeText(m Model) string {
	c := m.Change
	if c.Name == "" {
		return "no plan was given"
	}
	return fmt.Sprintf("%s -> %s by %s (%s)", c.Source, c.Target, c.Strategy, c.Name)
}

func runText(m Model) string {
	r := m.Run
	if r.Outcome == NotStarted {
		return "not started"
	}
	text := fmt.Sprintf("%s, took %s", strings.ReplaceAll(string(r.Outcome), "-", " "), duration(float64(r.Millis)))
	if r.EstimateMillis > 0 {
		text += fmt.Sprintf(" (estimated %s)", duration(float64(r.EstimateMillis)))
	}
	return text + fmt.Sprintf(", %d of %s done", r.StepsDone, countOf(int64(r.StepsTotal), "step"))
}

func measuredText(m Model) string {
	spans := m.Run.Measured
	if len(spans) == 0 {
		return "nothing"
	}
	return clock(spans[0].From) + " to " + clock(spans[len(spans)-1].To) + " UTC"
}

// clock is a time of day in UTC.
func clock(at time.Time) string { return at.UTC().Format(time.TimeOnly) }

func pathsText(m Model) string {
	t := m.Totals
	if t.Sent == 0 {
		return "not measured"
	}
	text := fmt.Sprintf("%s, %s, %s lost", countOf(int64(t.Paths), "path"), countOf(t.Sent, "probe"), number(t.Lost))
	if t.ProbeGapMillis > 0 {
		text += ", longest gap " + duration(t.ProbeGapMillis)
	}
	return text
}

// unseenText names the kinds of paths that the verdict does not cover.
func unseenText(m Model) string {
	if len(m.Verdict.Uncovered) == 0 {
		return ""
	}
	tested, unknown := paths.Unmeasured(m.Change.Strategy == "guard")
	return fmt.Sprintf("not measured: %s; %d more kinds of paths are only covered by tests (docs/paths.md)",
		strings.Join(unknown, "; "), len(tested))
}

// outsideText sums up the paths that leave the cluster; they are included in the line before.
func outsideText(m Model) string {
	t := m.Totals
	if t.OutsideSent == 0 {
		return outsideUnmeasured
	}
	return fmt.Sprintf("%s, %s, %s lost", countOf(int64(t.OutsidePaths), "path"),
		countOf(t.OutsideSent, "probe"), number(t.OutsideLost))
}

func deniedText(m Model) string {
	t := m.Totals
	if t.DeniedSent == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%s, %s", countOf(int64(t.Denied), "path"), countOf(t.DeniedSent, "probe")) + deniedAnswers(m)
}

func deniedAnswers(m Model) string {
	var answered int64
	for _, class := range m.Classes {
		answered += class.Leaked
	}
	return fmt.Sprintf(", %s answered", number(answered))
}

func trafficText(m Model) string {
	if len(m.Traffic) == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %s, %s failed, at most %s without an answer", countOf(int64(len(m.Traffic)), "client"),
		countOf(m.Totals.Requests, "request"), number(m.Totals.Failed), duration(longestWait(m.Traffic)))
}

func podsText(m Model) string {
	switch {
	case len(m.Workloads) == 0 && m.Change.Flag != "":
		return "none moved"
	case len(m.Workloads) == 0:
		return "not counted"
	}
	text := fmt.Sprintf("%s of %s, %s recreated, %s", countOf(int64(m.Totals.Pods), "pod"),
		countOf(int64(len(m.Workloads)), "workload"), number(int64(m.Totals.Evicted)),
		countOf(int64(m.Totals.Restarts), "restart"))
	var worst WorkloadOutcome
	for _, w := range m.Workloads {
		if w.NotReadyMillis > worst.NotReadyMillis {
			worst = w
		}
	}
	if worst.NotReadyMillis > 0 {
		text += fmt.Sprintf(", longest not ready %s (%s/%s)", duration(float64(worst.NotReadyMillis)),
			worst.Namespace, worst.Name)
	}
	return text
}

func gatesText(m Model) string {
	var passed, failed, pending int
	for _, gate := range m.Gates {
		switch {
		case gate.Pending:
			pending++
		case gate.Pass:
			passed++
		default:
			failed++
		}
	}
	if passed+failed+pending == 0 {
		return "none asked"
	}
	text := fmt.Sprintf("%d passed, %d failed", passed, failed)
	if pending > 0 {
		text += fmt.Sprintf(", %d not answered", pending)
	}
	return text
}

func residueText(m Model) string {
	r := m.Residue
	switch {
	case r.Rules && r.NodesBefore == 0:
		return "every node proved that none of the former rules is left"
	case m.keeps && r.NodesBefore == 0:
		return "not inventoried: no network was removed"
	case r.NodesAfter == 0 && m.Run.Outcome == RolledBack:
		return "not inventoried: the old network stayed, and every undone step removed its own residue"
	case r.NodesBefore == 0 && m.Run.Outcome != Done && m.Run.Outcome != NotStarted:
		return "not inventoried: the run did not get that far"
	case r.NodesBefore == 0:
		return "not inventoried"
	case r.NodesAfter == 0:
		return fmt.Sprintf("%s before on %s, not inventoried after",
			countOf(int64(r.Before), "thing"), countOf(int64(r.NodesBefore), "node"))
	}
	return fmt.Sprintf("%s before on %s, %s after on %d", countOf(int64(r.Before), "thing"),
		countOf(int64(r.NodesBefore), "node"), number(int64(r.After)), r.NodesAfter)
}

// worstOf is the longest gap of any kind in a step.
func worstOf(in Incident) float64 { return max(in.LongestMillis, in.LongestLeakMillis) }

func incidentText(in Incident) string {
	text := fmt.Sprintf("%s in %s: %s", clock(in.First), in.Step, countOf(int64(in.Paths), "path"))
	if in.Lost > 0 {
		text += fmt.Sprintf(", %s, longest %s", countOf(in.Lost, "lost probe"), duration(in.LongestMillis))
	}
	if in.Leaked > 0 {
		text += fmt.Sprintf(", %s for %s", countOf(in.Leaked, "denied probe")+" answered",
			duration(in.LongestLeakMillis))
	}
	return text
}
