package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/probe"
)

// hostNetwork is the network of paths that start at the node itself; its agent measures them.
const hostNetwork = "host"

// podNetworks are the networks whose paths probe pods measure.
func podNetworks() []string { return []string{"old", "new"} }

// split sorts out the paths that start on a node, by the network they start in.
func split(paths []v1alpha1.Path, node string) map[string][]v1alpha1.Path {
	wanted := map[string][]v1alpha1.Path{}
	for _, path := range paths {
		if path.Source.Node == node {
			wanted[path.Source.Network] = append(wanted[path.Source.Network], path)
		}
	}
	return wanted
}

// lives is how old the results of a probe pod that still runs may be.
const lives = 5 * time.Second

// combine puts the results of a node's sources into one status. Its generation is the oldest that any
// source works by that has paths to measure, or still runs by an older plan; a source that has paths and has not
// reported counts as 0, so that nobody takes its silence for a report on the plan. Results of paths that are measured
// no more stay.
func combine(generation int64, wanted map[string][]v1alpha1.Path, host []v1alpha1.PathResult, pods map[string]probe.ResultsFile, now time.Time) v1alpha1.ProbeReportStatus {
	status := v1alpha1.ProbeReportStatus{Generation: generation, Paths: slices.Clone(host)}
	for _, network := range podNetworks() {
		file := pods[network]
		if len(wanted[network]) > 0 || now.Sub(file.At) < lives {
			status.Generation = min(status.Generation, file.Generation)
		}
		status.Paths = append(status.Paths, file.Paths...)
	}
	slices.SortFunc(status.Paths, func(x, y v1alpha1.PathResult) int { return strings.Compare(x.ID, y.ID) })
	return status
}
