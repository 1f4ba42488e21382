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

// undescribed is the class of a path that has a result and no description.
const undescribed = "undescribed"

// account counts the reports' results, by the ids of the paths. Paths without a result are left out; paths without a
// description are read from their ids.
func account(known []v1alpha1.Path, reports []v1alpha1.ProbeReport) loss.Account {
	described := map[string]v1alpha1.Path{}
	for _, path := range known {
		described[path.ID] = path
	}
	found := map[string]v1alpha1.Path{}
	for _, report := range reports {
		for _, result := range report.Status.Paths {
			found[result.ID] = describe(described, result.ID)
		}
	}
	all := slices.SortedFunc(maps.Values(found), func(a, b v1alpha1.Path) int { return cmp.Compare(a.ID, b.ID) })
	return slices.DeleteFunc(loss.NewAccount(all, nil, reports, 0), func(p *loss.PathAccount) bool {
		return len(p.Results) == 0
	})
}

// describe finds a path's description, or derives it from an id such as "a/old>b/new/udp".
func describe(known map[string]v1alpha1.Path, id string) v1alpha1.Path {
	if path, ok := known[id]; ok {
		return path
	}
	path := v1alpha1.Path{ID: id, Class: undescribed}
	source, target, found := strings.Cut(id, ">")
	if !found {
		return path
	}
	path.Source.Node, path.Source.Network, _ = strings.Cut(source, "/")
	path.Denied = paths.Denies(id)
	parts := strings.Split(target, "/")
	if !slices.Contains([]string{"service", paths.ClassDNS, paths.ClassLocalDNS, paths.ClassOutside}, parts[0]) {
		path.Target.Node = parts[0]
	}
	if len(parts) > 1 {
		path.Target.Network = parts[1]
	}
	return path
}

// roundTrips are the p50 of the counter with the most probes, the worst p99 and the maximum, in microseconds.
func roundTrips(p *loss.PathAccount) (rtt [3]int64) {
	most := int64(0)
	for _, result := range p.Results {
		if result.Sent > most {
			most, rtt[0] = result.Sent, result.RTTMicros[0]
		}
		rtt[1], rtt[2] = max(rtt[1], result.RTTMicros[1]), max(rtt[2], result.RTTMicros[2])
	}
	return rtt
}

// gapOf is a path's gap as the report shows it.
func gapOf(p *loss.PathAccount, gap loss.Gap) Gap {
	return Gap{Path: p.ID, Class: p.Class, Source: endName(p.Source), Target: targetName(p.Path), From: gap.From,
		Millis: gap.Millis, Probes: gap.Probes, Cause: gap.Cause, Denied: p.Denied, Open: gap.Open, Second: gap.Second}
}

// targetName is the target's node and network, or its kind if it is on no node: "service new".
func targetName(p v1alpha1.Path) string {
	if p.Target.Node != "" {
		return endName(p.Target)
	}
	return offNode(p.Class, p.Target.Network)
}

// offNode names a target that is on no node by its class and, if it has one, its network.
func offNode(class, network string) string {
	kind := strings.TrimPrefix(class, "pod-")
	if network == "" {
		return kind
	}
	return kind + " " + network
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
