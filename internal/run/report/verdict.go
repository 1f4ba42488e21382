package report

import (
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	paths "github.com/theseus-cni/theseus/internal/proof/path"
)

// judge sums up the run in one line, and lists what was not measured.
func judge(in Input, m *Model, all loss.Account, h *history) Verdict {
	v := Verdict{Outside: outside(m.Totals), Why: h.why, Next: h.next, Missing: missing(in, m),
		Notes: notes(in, m, all)}
	if in.Held != "" && h.next != "" {
		v.Next = in.Held
	}
	if m.Totals.Sent > 0 {
		tested, unknown := paths.Unmeasured(in.Plan != nil && in.Plan.Foreign())
		v.Uncovered = append(unknown, tested...)
		if unpoliced(in.Plan) {
			v.Uncovered = append(v.Uncovered, "paths that a policy denies: neither network enforces policies")
		}
	}
	v.Line = line(m)
	if in.Plan != nil && in.Plan.Foreign() {
		v.foreign(in, m, all)
		return v
	}
	v.Level = level(m, len(v.Missing) > 0)
	v.Title, v.Word = title(m, v.Level), word(v.Level)
	return v
}

// level goes from the worst to the best: losses weigh more than how the run ended.
func level(m *Model, missing bool) Level {
	t := m.Totals
	over := t.ProbeGapMillis > m.Limit
	switch {
	case m.Run.Outcome == NeedsPerson, t.Failed > 0, t.Leaked > 0, t.Lost > 0 && over,
		t.Restarts > 0 && m.Run.Outcome == Done:
		return Bad
	case m.Run.Outcome == NotStarted:
		return Unknown
	case m.Run.Outcome != Done:
		return Stopped
	case missing:
		return Unknown
	case t.Lost > 0, m.Adopted.lost() > 0, m.Residue.After > 0:
		return Fair
	case t.OutsideSent == 0:
		return Partial
	}
	return Good
}

// The words for whether paths that leave the cluster were measured.
const (
	outsideMeasured   = "measured"
	outsideUnmeasured = "not measured"
)

func outside(t Totals) string {
	if t.OutsideSent == 0 {
		return outsideUnmeasured
	}
	return outsideMeasured
}

// title is the verdict in a few words: how the run ended, then its cost.
func title(m *Model, l Level) string {
	cost := costs(m)
	switch m.Run.Outcome {
	case NotStarted:
		return "Nothing was run"
	case NeedsPerson:
		return "Stopped halfway, needs a person; " + cost
	case RolledBack:
		return "Rolled back; " + cost
	case RollingBack:
		return "Rolling back; " + cost
	case Paused:
		return "Paused; " + cost
	case Running:
		return "Not finished; " + cost
	case Measuring:
		return "Measuring; until now " + cost
	}
	switch {
	case l == Unknown && m.Totals.Sent == 0:
		return "Done, but nothing was measured"
	case l == Unknown:
		return "Done, but not everything was measured"
	case l == Partial:
		return "Nothing was lost inside the cluster; outside: " + outsideUnmeasured
	}
	return strings.ToUpper(cost[:1]) + cost[1:]
}

// nothingLost are the words for a run without a cost.
const nothingLost = "nothing was lost"

// costs names the losses, the worst first.
func costs(m *Model) string {
	t := m.Totals
	var parts []string
	if t.Failed > 0 {
		parts = append(parts, countOf(t.Failed, "request")+" failed")
	}
	if t.Leaked > 0 {
		parts = append(parts, countOf(t.Leaked, "denied probe")+" answered")
	}
	if t.Lost > 0 {
		parts = append(parts, countOf(t.Lost, "probe")+" lost")
	}
	for _, f := range m.Elsewhere {
		if f.Lost+f.Leaked > 0 {
			parts = append(parts, fmt.Sprintf("%s from %s lost, or answered although denied",
				countOf(f.Lost+f.Leaked, "probe"), f.Name))
		}
	}
	if n := m.NewPods.fails(); n > 0 {
		parts = append(parts, countOf(n, "new pod")+" failed")
	}
	parts = append(parts, m.Samples.costs()...)
	if lost := m.Adopted.lost(); lost > 0 {
		parts = append(parts, countOf(lost, "datagram")+" of moved pods lost")
	}
	if t.Restarts > 0 {
		parts = append(parts, countOf(int64(t.Restarts), "restart"))
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, ", ")
	case t.Sent == 0 && t.Requests == 0:
		return "nothing was measured"
	case m.Residue.After > 0:
		return "nothing was lost, but residue is left"
	}
	return nothingLost
}

// line is the sentence with every figure, and with "not measured" where there is none.
func line(m *Model) string {
	t := m.Totals
	parts := []string{nodesText(m)}
	switch {
	case len(m.Workloads) == 0 && m.Change.Flag != "":
		parts = append(parts, "no pod moved")
	case len(m.Workloads) == 0:
		parts = append(parts, "pods not counted")
	default:
		parts = append(parts, countOf(int64(t.Pods), "pod"), countOf(int64(t.Restarts), "restart"))
	}
	if len(m.Traffic) > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s", countOf(t.Failed, "failed request"), number(t.Requests)))
	}
	if t.Sent > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s", countOf(t.Lost, "lost probe"), number(t.Sent)))
	} else {
		parts = append(parts, "no path measured")
	}
	if t.DeniedSent > 0 || t.Leaked > 0 {
		parts = append(parts, number(t.Leaked)+" denied answered")
	} else {
		parts = append(parts, "denied paths not measured")
	}
	if t.Sent > 0 && t.OutsideSent == 0 {
		parts = append(parts, "outside: "+outsideUnmeasured)
	}
	return strings.Join(append(parts, longest(m)), ", ")
}

func nodesText(m *Model) string {
	t := m.Totals
	if m.Run.Outcome == Done || m.Run.Outcome == NotStarted {
		return countOf(int64(t.Nodes), "node")
	}
	return fmt.Sprintf("%d of %s switched", t.NodesSwitched, countOf(int64(t.Nodes), "node"))
}

// longest is the longest gap of a path, and separately the longest time that a client was without an answer. That time
// is above zero even if nothing was lost, and is no gap.
func longest(m *Model) string {
	t := m.Totals
	text := "longest gap on a path " + duration(t.ProbeGapMillis)
	switch {
	case t.Sent == 0:
		text = "gaps not measured"
	case t.ProbeGapMillis == 0:
		text = "no gap on any path"
	}
	if waited := longestWait(m.Traffic); len(m.Traffic) > 0 {
		text += ", clients at most " + duration(waited) + " without an answer"
	}
	return text
}

// longestWait is the longest time between two answers that any client saw, in ms.
func longestWait(clients []Traffic) float64 {
	longest := 0.0
	for _, client := range clients {
		longest = max(longest, client.LongestGapMillis)
	}
	return longest
}

// missing lists quantities that should have been measured and were not.
func missing(in Input, m *Model) []string {
	var list []string
	say := func(when bool, format string, args ...any) {
		if when {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	// whose network may have no policy: the gate decides what was measured
	t, foreign := m.Totals, in.Plan != nil && in.Plan.Foreign()
	say(len(in.Records) == 0, "There is no journal, so Theseus does not know what the run did.")
	say(t.Sent == 0, "No path was measured, so losses are unknown.")
	say(len(in.Unread) > 0, "Some results of earlier processes could not be read: %s.", some(in.Unread))
	for _, f := range m.Elsewhere {
		say(f.Lacks != "", "What %s measured does not show the whole guard: %s.", f.Name, f.Lacks)
		say(m.compared && f.Lost > 0, "%s from %s lost: what other machines lose is not compared with the baseline.",
			countOf(f.Lost, "probe"), f.Name)
	}
	if t.Sent > 0 {
		say(t.Unmeasured > 0, "%s have no result.", countOf(int64(t.Unmeasured), "planned path"))
		say(t.DeniedSent == 0 && !foreign && !unpoliced(in.Plan), "No path that policy denies was measured.")
		silent := silentNodes(m)
		say(len(silent) > 0, "No probe report came from %s: %s.", countOf(int64(len(silent)), "node"), some(silent))
	}
	flag := in.Plan != nil && in.Plan.InPlace() // no pod is moved, and no network removed
	say(len(in.Workloads) == 0 && !flag, "The pods were not counted: restarts and evictions are unknown.")
	pending := 0
	for _, gate := range m.Gates {
		if gate.Pending {
			pending++
		}
	}
	say(pending > 0, "%s not answered.", countOf(int64(pending), "gate"))
	if m.Run.Outcome == Done {
		say(m.Residue.NodesBefore == 0 && !m.keeps, "The residue of the old network was not inventoried.")
		say(len(m.Residue.NodesWithout) > 0, "No inventory after the clean-up from: %s.", some(m.Residue.NodesWithout))
	}
	return list
}

// unpoliced reports whether no network of a plan enforces policies, so that it has no denied paths.
func unpoliced(p *plan.Plan) bool {
	none := func(i *cni.Installation) bool { return i.Capabilities.Policy == cni.PolicyNone && i.PolicyAgent == nil }
	return p != nil && none(&p.Source) && (p.InPlace() || none(&p.Target))
}

func silentNodes(m *Model) []string {
	var silent []string
	for _, node := range m.Nodes {
		if !node.Reported {
			silent = append(silent, node.Name)
		}
	}
	return silent
}
