package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/proof/probe"
)

// networks are those that paths start in. Each has a prober of its own on the node: "host" is the node's own network.
func networks() []string { return []string{"old", "new", "host"} }

// split sorts out the paths that start on a node, by the network they start in.
func split(paths []v1alpha1.Path, node string) map[string][]v1alpha1.Path {
	wanted := map[string][]v1alpha1.Path{}
	for _, one := range paths {
		if one.Source.Node == node {
			wanted[one.Source.Network] = append(wanted[one.Source.Network], one)
		}
	}
	return wanted
}

// lives is how old the results of a prober that still runs may be.
const lives = 5 * time.Second

// combine puts the results of a node's sources into one status. Its generation is the oldest that any
// source works by that has paths to measure, or still runs by an older plan; a source that has paths and has not
// reported counts as 0, so that its silence does not count as a report on the plan. Results of paths that are measured
// no more stay.
func combine(node string, generation int64, wanted map[string][]v1alpha1.Path, found map[string]probe.ResultsFile,
	now time.Time) v1alpha1.ProbeReportStatus {
	status := v1alpha1.ProbeReportStatus{Generation: generation, Paths: []v1alpha1.PathResult{}}
	for _, network := range networks() {
		file := found[network]
		if len(wanted[network]) > 0 || now.Sub(file.At) < lives {
			status.Generation = min(status.Generation, file.Generation)
		}
		status.Paths = append(status.Paths, startingIn(node, network, file.Paths)...)
		if !file.Since.IsZero() {
			part := v1alpha1.Part{Name: network, Pod: file.Pod, Since: file.Since}
			if len(wanted[network]) > 0 {
				part.At = file.At
			}
			status.Parts = append(status.Parts, part)
		}
	}
	slices.SortFunc(status.Paths, func(x, y v1alpha1.PathResult) int { return strings.Compare(x.ID, y.ID) })
	return status
}

// countedAt is until when all the counts of a node's sources reach that were read at a time: those of the prober that
// has written nothing for the longest may be old, as it may hang. How old they are is a short time, unless it does, so
// a clock that is set hardly matters.
func countedAt(wanted map[string][]v1alpha1.Path, found map[string]probe.ResultsFile, read time.Time) time.Time {
	age := time.Duration(0)
	for network, paths := range wanted {
		if len(paths) > 0 {
			age = max(age, read.Sub(found[network].At))
		}
	}
	return read.Add(-age)
}

// startingIn are the results of paths that start on a node in a network: a probe pod is a witness of its own paths
// alone, whatever its file says.
func startingIn(node, network string, results []v1alpha1.PathResult) []v1alpha1.PathResult {
	return slices.DeleteFunc(results, func(result v1alpha1.PathResult) bool {
		on, in := path.Origin(result.ID)
		return on != node || in != network
	})
}

// maxGone bounds the absences that are kept of a prober: the latest.
const maxGone = 32

// goneSince adds to parts when their probers were gone, by the parts of the report before. A recreated probe pod is
// another one: its predecessor was not measured any more when it was deleted.
func goneSince(before, now []v1alpha1.Part) []v1alpha1.Part {
	for i := range now {
		part := &now[i]
		at := slices.IndexFunc(before, func(former v1alpha1.Part) bool { return former.Name == part.Name })
		if at < 0 {
			continue
		}
		former := before[at]
		part.Gone = slices.Clone(former.Gone)
		again := former.Pod != part.Pod && part.Name != path.Host
		if !part.Since.Equal(former.Since) && !former.At.IsZero() && !again {
			from := former.At
			if from.After(part.Since) { // the clock was set back: how long it was gone is not known
				from = part.Since
			}
			part.Gone = append(part.Gone, v1alpha1.Absence{From: from, To: part.Since})
			part.Gone = part.Gone[max(0, len(part.Gone)-maxGone):]
		}
	}
	return now
}

// withFormer adds the parts that a report lacks and an earlier one had. A prober that starts removes its results first,
// and has none for a moment: a report of that moment must not hide that the prober was gone.
func withFormer(now, before []v1alpha1.Part) []v1alpha1.Part {
	all := slices.Clone(now)
	for _, former := range before {
		if !slices.ContainsFunc(now, func(part v1alpha1.Part) bool { return part.Name == former.Name }) {
			all = append(all, former)
		}
	}
	return all
}
