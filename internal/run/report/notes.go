package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
)

// notes are remarks that a careful reader needs.
func notes(in Input, m *Model, all loss.Account) []string {
	var list []string
	say := func(when bool, format string, args ...any) {
		if when {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	var hidden, early, open int64
	unknown := 0
	for _, one := range all {
		hidden += one.Hidden
		if one.Class == undescribed {
			unknown++
		}
	}
	for _, gap := range m.Gaps {
		if gap.Open {
			open++
		}
		if gap.Step == beforeRun {
			early++
		}
	}
	say(m.Run.Resumed > 0, "The run was resumed %s.", timesText(m.Run.Resumed))
	say(early > 0, "%s began before the run and count in the totals.", countOf(early, "gap"))
	say(open > 0, "%s had not ended in the last report.", countOf(open, "gap"))
	say(hidden > 0, "%s were dropped from the reports; their probes are counted.", countOf(hidden, "gap"))
	say(unknown > 0, "%s have no description; their class is read from their ids.",
		countOf(int64(unknown), "measured path"))
	say(m.Limit == 0 && m.Totals.Gaps > 0 && !m.compared, "No gate names a limit, so every gap counts as too long.")
	say(m.Totals.Sent > 0 && m.Totals.DeniedSent == 0 && in.Plan != nil && in.Plan.Foreign(),
		"No path that policy denies was measured.")
	say(len(in.Paths) > 0 && in.Plan != nil && in.Plan.Foreign(), "What measuring cost: %s.", path.RateOf(in.Paths))
	say(m.Totals.Excused > 0, "Not counted as lost: %s that got no answer while all possible responders were "+
		"stalled. They say nothing about the network.",
		countOf(m.Totals.Excused, "probe"))
	list = append(list, leftNotes(in, all)...)
	for _, f := range m.Elsewhere {
		list = append(list, f.String())
	}
	list = append(list, unaskedNotes(in)...)
	for _, one := range in.Foreign {
		list = append(list, fmt.Sprintf("The report of %s had a result of a path that starts on another node, %s. "+
			"Theseus ignored it. No agent writes such a result: find out who did.",
			one.Node, one.Path))
	}
	for _, restart := range m.PartRestarts {
		list = append(list, restart.String())
	}
	list = append(list, m.Load.says()...)
	list = append(list, newPodsNotes(m.NewPods)...)
	list = append(list, samplesNotes(m.Samples)...)
	list = append(list, looksNote(in)...)
	list = append(list, shortNote(m)...)
	list = append(list, stallNote(m)...)
	return append(list, windowNote(m)...)
}

// leftNotes say which nodes left the cluster, and what does not count because of that.
func leftNotes(in Input, all loss.Account) (list []string) {
	var services int64
	for _, one := range all {
		_, from := in.Left[one.Source.Node]
		if _, to := in.Left[one.Target.Node]; !from && !to {
			services += one.Left
		}
	}
	for _, node := range slices.Sorted(maps.Keys(in.Left)) {
		var lost int64
		for _, one := range all {
			if one.Source.Node == node || one.Target.Node == node {
				lost += one.Left
			}
		}
		list = append(list, fmt.Sprintf("Node %s left the cluster. Not counted as lost: %s on the paths from and to "+
			"it since it began to leave, at %s.", node, countOf(lost, "probe"), clock(in.Left[node])))
	}
	if services > 0 {
		list = append(list, fmt.Sprintf("Not counted as lost: %s that other nodes sent over open connections "+
			"through Services, in one gap of at most %s for each path and each node that left. Such a connection, or "+
			"UDP flow, is bound to a pod, and ends with it.", countOf(services, "probe"), loss.Rebinds))
	}
	return list
}

// unaskedNotes say which nodes have joined a guard, which kinds of paths it does not measure, and why.
func unaskedNotes(in Input) (list []string) {
	if in.Plan == nil || !in.Plan.Foreign() {
		return nil
	}
	r := result.Of(in.Plan, in.Records)
	for _, one := range r.Joined() {
		list = append(list, fmt.Sprintf("Node %s joined, and its paths are measured since %s.", one.Node,
			clock(one.At)))
	}
	for _, one := range r.Silent {
		list = append(list, "Not measured: "+one.String()+".")
	}
	for _, one := range r.JoinedSilent() {
		list = append(list, "Of a node that joined, not measured: "+one.String()+".")
	}
	if why := in.Plan.NoHostPorts(); why != "" {
		list = append(list, "Not measured: hostPorts. "+strings.ToUpper(why[:1])+why[1:]+".")
	}
	return list
}

// shortNote names the workloads that had too few ready pods for a time, longest first.
func shortNote(m *Model) []string {
	short := slices.DeleteFunc(slices.Clone(m.Workloads), func(w WorkloadOutcome) bool { return w.NotReadyMillis == 0 })
	if len(short) == 0 {
		return nil
	}
	slices.SortStableFunc(short, func(a, b WorkloadOutcome) int {
		return cmp.Compare(b.NotReadyMillis, a.NotReadyMillis)
	})
	var names []string
	for _, w := range short {
		names = append(names, fmt.Sprintf("%s/%s (%s)", w.Namespace, w.Name, duration(float64(w.NotReadyMillis))))
	}
	return []string{"Temporarily short of ready pods: " + some(names) + "."}
}

func stallNote(m *Model) []string {
	stalls, longest, node, excused := 0, 0.0, "", int64(0)
	for _, n := range m.Nodes {
		stalls += n.Stalls
		excused += n.Excused
		if n.LongestStallMillis > longest {
			longest, node = n.LongestStallMillis, n.Name
		}
	}
	if stalls == 0 {
		return nil
	}
	text := fmt.Sprintf("Probers stalled %s; the longest stall was %s on %s. A stalled prober sends nothing, so "+
		"nothing was measured in that time.",
		timesText(stalls), duration(longest), node)
	if excused > 0 {
		text += fmt.Sprintf(" %s arrived during a stall and were read after their timeout; they are not counted as "+
			"lost.", countOf(excused, "answer"))
	}
	return []string{text}
}

// windowNote reports times of the run in which nothing was measured.
func windowNote(m *Model) []string {
	spans := m.Run.Measured
	if len(spans) == 0 || m.Run.Begin.IsZero() {
		return nil
	}
	head := spans[0].From.Sub(m.Run.Begin)
	tail := m.Run.End.Sub(spans[len(spans)-1].To)
	var parts []string
	if head > time.Second {
		parts = append(parts, "began "+duration(millis(head))+" after the run began")
	}
	if tail > time.Second {
		parts = append(parts, "ended "+duration(millis(tail))+" before the run ended")
	}
	if len(spans) > 1 {
		parts = append(parts, "was interrupted "+timesText(len(spans)-1))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"The measurement " + strings.Join(parts, ", ") + "."}
}
