package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// PartRestart is a restart of one of Theseus' own processes: the agent of a node, or one of its probers.
type PartRestart struct {
	Node string `json:"node"`
	// Part is "agent", or the network of a prober: "old", "new" or "host".
	Part string    `json:"part"`
	At   time.Time `json:"at"`
}

// partRestarts are all restarts of Theseus' own processes, in order. A probe pod that Theseus deleted and recreated
// does not count.
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
			for _, gone := range part.Gone { // a process that took over the run may have seen no more than this
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

// whatCounts explains what a prober's restart means for the figures.
const whatCounts = "Probes to it count as lost, unless the second responder in its pod answered the same kind of " +
	"probe throughout. It sent nothing meanwhile, so those paths were not measured."

// String describes the restart, and what it means for the figures.
func (r PartRestart) String() string {
	at := r.At.UTC().Format("15:04:05 MST")
	switch r.Part {
	case v1alpha1.PartAgent:
		return fmt.Sprintf("Theseus' agent on %s restarted at %s. The agent sends and answers no probes, so no probe "+
			"is missing or excused.", r.Node, at)
	case "host":
		return fmt.Sprintf("The prober of the host of %s restarted at %s. %s", r.Node, at, whatCounts)
	}
	return fmt.Sprintf("The probe pod of %s on the %s network restarted at %s. %s", r.Node, r.Part, at, whatCounts)
}
