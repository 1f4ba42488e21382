package report

import (
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/run/guarded/result"
)

// NewPods are the new pods that a guard made: before the change, and since then.
type NewPods struct {
	Before *result.NewPods `json:"before,omitempty"`
	Since  *result.NewPods `json:"since,omitempty"`
	// Failed are the failed ones that count as a loss: on their nodes none failed before the change.
	Failed []result.NewPod `json:"failed,omitempty"`
}

// newPods reads the journal of a guard.
func newPods(in Input) *NewPods {
	if in.Plan == nil || !in.Plan.Foreign() {
		return nil
	}
	r := result.Of(in.Plan, in.Records)
	n := &NewPods{Before: r.NewPodsBefore, Since: r.NewPods()}
	if n.Before == nil && n.Since == nil {
		return nil
	}
	if n.Since != nil {
		n.Failed = n.Since.Since(n.Before)
	}
	return n
}

// fails counts the failures since the change; at least, where some are of nodes on which new pods failed before it.
func (n *NewPods) fails() int64 {
	switch {
	case n == nil || n.Since == nil:
		return 0
	case len(n.Failed) == len(n.Since.Failed):
		return int64(n.Since.Failures)
	}
	return int64(len(n.Failed))
}

// Text says what became of new pods; empty if none were made.
func (n *NewPods) Text() string {
	var parts []string
	switch {
	case n == nil:
		return ""
	case n.Since != nil:
		parts = append(parts, n.Since.String())
	default:
		parts = append(parts, "none made since the baseline yet")
	}
	if n.Before != nil {
		parts = append(parts, "before the change: "+n.Before.String())
	}
	return strings.Join(parts, "; ")
}

// newPodsNotes say which new pods failed, and which were not measured.
func newPodsNotes(n *NewPods) []string {
	if n == nil {
		return nil
	}
	var list []string
	for _, p := range n.Failed {
		list = append(list, "New pod failed on "+p.String())
	}
	if n.Before != nil {
		for _, p := range n.Before.Failed {
			list = append(list,
				"A new pod failed before the change, so new pods on that node prove nothing: "+p.String())
		}
		if n.Before.Lacks != "" {
			list = append(list, "New pods before the change: "+n.Before.Lacks)
		}
	}
	if note := n.Since.UnmeasuredNote(); note != "" {
		list = append(list, note)
	}
	return list
}

// newPodsFigures are the figure of new pods, if some were made.
func newPodsFigures(m Model) []figure {
	n := m.NewPods
	switch {
	case n == nil:
		return nil
	case n.Since == nil || n.Since.Made == 0:
		return []figure{{"New pods failed", noData, "no new pod was measured since the baseline", "none"}}
	}
	note := fmt.Sprintf("of %s", countOf(int64(n.Since.Made), "new pod"))
	if n.Since.Ready > 0 {
		note += ", reachable after " + duration(float64(n.Since.Median())) + " (median) to " +
			duration(float64(n.Since.Longest))
	}
	return []figure{{"New pods failed", number(int64(n.Since.Failures)), note, toneOf(n.fails() > 0)}}
}
