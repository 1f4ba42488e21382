package loss

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// counter is one run of counting on a path, from the fewest probes to the most.
type counter struct {
	results  []v1alpha1.PathResult
	reported time.Time // when the latest report with it was written
}

// countersOf groups the results of reports by path, and within a path by counter, oldest first. It leaves out results
// of sources that have not begun to count.
func countersOf(reports []v1alpha1.ProbeReport) map[string][]counter {
	counters := map[string][]counter{}
	for _, report := range reports {
		for _, result := range report.Status.Paths {
			if result.Sent == 0 && result.Open == nil {
				continue
			}
			all := counters[result.ID]
			i := slices.IndexFunc(all, func(c counter) bool { return c.results[0].Since.Equal(result.Since) })
			if i < 0 {
				i, all = len(all), append(all, counter{})
			}
			all[i].results = append(all[i].results, result)
			all[i].reported = later(all[i].reported, report.Status.At)
			counters[result.ID] = all
		}
	}
	for _, all := range counters {
		slices.SortFunc(all, func(a, b counter) int { return a.results[0].Since.Compare(b.results[0].Since) })
		for _, c := range all {
			slices.SortStableFunc(c.results, func(a, b v1alpha1.PathResult) int {
				return cmp.Or(cmp.Compare(a.Sent, b.Sent), a.Last.Compare(b.Last))
			})
		}
	}
	return counters
}

// united are the gaps of all results, oldest first. One that was still growing in a result is longer in the next.
func united(results []v1alpha1.PathResult, of func(v1alpha1.PathResult) []v1alpha1.Gap) []v1alpha1.Gap {
	if len(results) == 1 {
		return of(results[0])
	}
	longest := map[int64]v1alpha1.Gap{}
	for _, result := range results {
		for _, gap := range of(result) {
			key := gap.From.UnixNano()
			if known, ok := longest[key]; !ok || gap.Millis > known.Millis {
				longest[key] = gap
			}
		}
	}
	return slices.SortedFunc(maps.Values(longest), func(a, b v1alpha1.Gap) int { return a.From.Compare(b.From) })
}
