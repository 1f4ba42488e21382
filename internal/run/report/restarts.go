package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// PartRestart is a restart of one of Theseus' own parts: the agent of a node, or one of its probers.
type PartRestart struct {
	Node string `json:"node"`
	// Part is "agent", or the network of a prober: "old", "new" or "host".
	Part string    `json:"part"`
	At   time.Time `json:"at"`
}

// partRestarts are all restarts of Theseus' own parts, in order. A probe pod that Theseus deleted and made again is no restart.
func partRestarts(reports []v1alpha1.ProbeReport) []PartRestart {
	type place struct{ node, part string }
	runs := map[place][]v1alpha1.Part{}
	for _, report := range reports {
		for _, part := range report.Status.Parts {
			at := place{report.Name, part.Name}
			runs[at] = append(runs[at], part)
		}
	}
	seen := map[PartRestart]bool{}
	for at, all := range runs {
		slices.SortFunc(all, func(a, b v1alpha1.Part) int { return a.Since.Compare(b.Since) })
		for i, part := range all {
			bare := at.part == "old" || at.part == "new"
			if i > 0 && part.Since.After(all[i-1].Since) && (!bare || part.Pod == all[i-1].Pod) {
				seen[PartRestart{Node: at.node, Part: at.part, At: part.Since.UTC()}] = true
			}
			for _, gone := range part.Gone { // of which who took the run over may have seen no more than this
				seen[PartRestart{Node: at.node, Part: at.part, At: gone.To.UTC()}] = true
			}
		}
	}
	restarts := slices.Collect(maps.Keys(seen))
	slices.SortFunc(restarts, func(a, b PartRestart) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Part, b.Part))
	})
	return restarts
}

// whatCounts says what a restart of a prober means for the figures.
const whatCounts = "Probes to it count as lost, unless the second responder beside it answered the same kind of probe throughout; what it would have sent meanwhile was not measured."

// String says what restarted, where, when, and what that means for the figures.
func (r PartRestart) String() string {
	at := r.At.UTC().Format("15:04:05 MST")
	switch r.Part {
	case v1alpha1.PartAgent:
		return fmt.Sprintf("Theseus' agent on %s restarted at %s. It sends and answers no probes, so none is missing or excused.", r.Node, at)
	case "host":
		return fmt.Sprintf("The prober of the host of %s restarted at %s. %s", r.Node, at, whatCounts)
	}
	return fmt.Sprintf("The probe pod of %s on the %s network restarted at %s. %s", r.Node, r.Part, at, whatCounts)
}
