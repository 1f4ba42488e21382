package report

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	paths "github.com/theseus-cni/theseus/internal/proof/path"
)

// measured is everything known about one path over the whole run.
type measured struct {
	v1alpha1.Path
	sent, answered int64
	excused        int64 // of the answered: seen late, as the prober did not run
	unheard        int64 // of the others: nobody ran who could have answered
	// rtt is the p50 of the largest accumulation (most probes), the worst p99 and the maximum, in microseconds.
	rtt  [3]int64
	most int64

	spans  []Span
	gaps   []Gap
	stalls []v1alpha1.Gap
	// hidden counts gaps that no report kept.
	hidden int64
}

// lost is how many probes went unanswered that should have been answered.
func (m *measured) lost() int64 {
	if m.Denied {
		return 0
	}
	return m.sent - m.answered - m.unheard
}

// leaked is how many probes were answered that policy must deny.
func (m *measured) leaked() int64 {
	if !m.Denied {
		return 0
	}
	return m.answered
}

// count names one accumulation: a prober that restarts begins another one of the same path.
type count struct {
	path  string
	since int64
}

// merge turns reports, in any order and with repetitions, into one result per path, sorted by id.
func merge(paths []v1alpha1.Path, reports []v1alpha1.ProbeReport) []*measured {
	series := map[count][]v1alpha1.PathResult{}
	for _, report := range reports {
		for _, result := range report.Status.Paths {
			if result.Sent == 0 && result.Open == nil {
				continue
			}
			key := count{result.ID, result.Since.UnixNano()}
			series[key] = append(series[key], result)
		}
	}
	known := map[string]v1alpha1.Path{}
	for _, path := range paths {
		known[path.ID] = path
	}
	byID := map[string]*measured{}
	keys := slices.SortedFunc(maps.Keys(series), func(a, b count) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.since, b.since))
	})
	for _, key := range keys {
		m := byID[key.path]
		if m == nil {
			m = &measured{Path: describe(known, key.path)}
			byID[key.path] = m
		}
		m.add(series[key])
	}
	all := make([]*measured, 0, len(byID))
	for _, m := range byID {
		m.settle()
		all = append(all, m)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].ID < all[j].ID })
	excuse(all, reports)
	return all
}

// excuse takes what was sent while nobody ran who could have answered out of the gaps.
func excuse(all []*measured, reports []v1alpha1.ProbeReport) {
	stills := loss.NewStills(loss.DefaultTimeout)
	for _, report := range reports {
		stills.Gone(report.Name, report.Status.Parts)
	}
	for _, m := range all {
		for _, span := range m.spans {
			stills.Add(m.Path, span.From, span.To, m.stalls)
		}
	}
	for _, m := range all {
		m.gaps = slices.DeleteFunc(m.gaps, func(gap Gap) bool {
			unheard := stills.Unheard(m.Path, v1alpha1.Gap{From: gap.From, Probes: gap.Probes, Cause: gap.Cause, Second: gap.Second})
			m.unheard += unheard
			return unheard == gap.Probes
		})
	}
}

// describe finds a path's description, or reads what it can from an id such as "a/old>b/new/udp".
func describe(known map[string]v1alpha1.Path, id string) v1alpha1.Path {
	if path, ok := known[id]; ok {
		return path
	}
	path := v1alpha1.Path{ID: id, Class: "undescribed"}
	source, target, found := strings.Cut(id, ">")
	if !found {
		return path
	}
	path.Source.Node, path.Source.Network, _ = strings.Cut(source, "/")
	path.Denied = paths.Denies(id)
	parts := strings.Split(target, "/")
	if parts[0] != "service" && parts[0] != "dns" && parts[0] != paths.ClassOutside {
		path.Target.Node = parts[0]
	}
	if len(parts) > 1 {
		path.Target.Network = parts[1]
	}
	return path
}

// add takes the results of one accumulation, of which the newest holds the counts and all hold gaps.
func (m *measured) add(results []v1alpha1.PathResult) {
	sort.Slice(results, func(i, j int) bool {
		if results[i].Sent != results[j].Sent {
			return results[i].Sent < results[j].Sent
		}
		return results[i].Last.Before(results[j].Last)
	})
	last := results[len(results)-1]
	m.sent += last.Sent
	m.answered += last.Answered
	m.excused += last.Excused
	if last.Sent > m.most {
		m.most, m.rtt[0] = last.Sent, last.RTTMicros[0]
	}
	m.rtt[1] = max(m.rtt[1], last.RTTMicros[1])
	m.rtt[2] = max(m.rtt[2], last.RTTMicros[2])
	m.spans = append(m.spans, Span{last.Since, last.Last})

	gaps, stalls := map[int64]v1alpha1.Gap{}, map[int64]v1alpha1.Gap{}
	for _, result := range results {
		keepLongest(gaps, result.Gaps)
		keepLongest(stalls, result.Stalls)
	}
	m.hidden += max(0, int64(len(last.Gaps))+last.Dropped-int64(len(gaps)))
	for _, gap := range gaps {
		m.gaps = append(m.gaps, m.gap(gap, false))
	}
	for _, stall := range stalls {
		m.stalls = append(m.stalls, stall)
	}
	if last.Open != nil {
		open := *last.Open
		open.Millis = max(open.Millis, millis(last.Last.Sub(open.From)))
		m.gaps = append(m.gaps, m.gap(open, true))
	}
}

// keepLongest unites gaps by their beginning: a gap that was still growing in one report is longer in the next.
func keepLongest(into map[int64]v1alpha1.Gap, gaps []v1alpha1.Gap) {
	for _, gap := range gaps {
		key := gap.From.UnixNano()
		if old, ok := into[key]; !ok || gap.Millis > old.Millis {
			into[key] = gap
		}
	}
}

func (m *measured) gap(gap v1alpha1.Gap, open bool) Gap {
	return Gap{Path: m.ID, Class: m.Class, Source: endName(m.Source), Target: m.targetName(), From: gap.From,
		Millis: gap.Millis, Probes: gap.Probes, Cause: gap.Cause, Denied: m.Denied, Open: open, Second: gap.Second}
}

// targetName is the target's node and network, or what it is where it is on no node: "service new".
func (m *measured) targetName() string {
	if m.Target.Node != "" {
		return endName(m.Target)
	}
	return offNode(m.Class, m.Target.Network)
}

// offNode names a target that is on no node by its class and, where it has one, its network.
func offNode(class, network string) string {
	kind := strings.TrimPrefix(class, "pod-")
	if network == "" {
		return kind
	}
	return kind + " " + network
}

// settle puts what came from maps into order.
func (m *measured) settle() {
	sort.Slice(m.gaps, func(i, j int) bool { return m.gaps[i].From.Before(m.gaps[j].From) })
	sort.Slice(m.stalls, func(i, j int) bool { return m.stalls[i].From.Before(m.stalls[j].From) })
	sort.Slice(m.spans, func(i, j int) bool { return m.spans[i].From.Before(m.spans[j].From) })
}

// endName is how people name an end of a path.
func endName(end v1alpha1.Endpoint) string {
	switch {
	case end.Node == "" && end.Network == "":
		return end.Address
	case end.Node == "":
		return end.Network
	case end.Network == "":
		return end.Node
	}
	return end.Node + "/" + end.Network
}

// unite joins spans that touch or overlap.
func unite(spans []Span) []Span {
	sort.Slice(spans, func(i, j int) bool { return spans[i].From.Before(spans[j].From) })
	var joined []Span
	for _, span := range spans {
		last := len(joined) - 1
		if last >= 0 && !span.From.After(joined[last].To.Add(time.Second)) {
			if span.To.After(joined[last].To) {
				joined[last].To = span.To
			}
			continue
		}
		joined = append(joined, span)
	}
	return joined
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Seen is what probes have seen so far, counted as a report counts it.
type Seen struct {
	Sent, Lost, Leaked int64
	LongestGapMillis   float64
}

// Sum counts what reports hold as a report does, so that what is shown while a run goes on is what its report says in the end.
func Sum(known []v1alpha1.Path, reports []v1alpha1.ProbeReport) Seen {
	var seen Seen
	for _, m := range merge(known, reports) {
		seen.Sent += m.sent
		seen.Lost += m.lost()
		seen.Leaked += m.leaked()
		for _, gap := range m.gaps {
			seen.LongestGapMillis = max(seen.LongestGapMillis, gap.Millis)
		}
	}
	return seen
}
