// Package load checks how busy the kernel's part of the network is on each node: would a change, or a busier network,
// lose packets here?
package load

import (
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// unsampled says which nodes have no counters; "" if all have some.
func unsampled(pass *check.Pass) string {
	var without []string
	for i := range pass.Snapshot.Facts {
		if facts := &pass.Snapshot.Facts[i]; facts.Host == nil || facts.Host.Load == nil {
			without = append(without, facts.Node)
		}
	}
	if len(without) == 0 {
		return ""
	}
	return fmt.Sprintf("the agents of %s reported no counters (%s): run theseus snapshot --nodes again with an agent "+
		"of this version", cluster.Count(len(without), "node"), check.Names(without))
}

// dropping describes the counters of a node that grew while they were watched, each as "name +N"; and how often they
// grew since the node started.
func dropping(load *cluster.Load, counters ...string) (now []string, boot int64) {
	for _, name := range counters {
		counter := load.Counters[name]
		if counter.Sample > 0 {
			now = append(now, fmt.Sprintf("%s +%d", name, counter.Sample))
		}
		boot += counter.Boot
	}
	return now, boot
}

// dropsOfLinks are the names of the counters of what links, and the queues in front of them, dropped.
func dropsOfLinks(load *cluster.Load) (names []string) {
	for name := range load.Counters {
		if strings.HasPrefix(name, "link.") || strings.HasPrefix(name, "qdisc.") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
