package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// unserved says of which nodes a counter of a network's program is not known, and why; empty if it is known of all.
// all reports whether it is known of none.
func unserved(pass *check.Pass, counter, program, enable string) (why string, all bool) {
	if len(pass.Snapshot.Facts) == 0 {
		return "the input lacks facts of the nodes: run theseus snapshot --nodes", true
	}
	if why := unsampled(pass); why != "" {
		return why, true
	}
	var without []string
	reasons := map[string]bool{}
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		if _, ok := facts.Host.Load.Counters[counter]; ok {
			continue
		}
		without = append(without, facts.Node)
		for url, reason := range facts.Host.Load.Unread {
			reasons[url+": "+reason] = true
		}
	}
	if len(without) == 0 {
		return "", false
	}
	said := slices.Sorted(maps.Keys(reasons))
	if len(said) == 0 {
		said = []string{"the agent did not ask for it: run theseus snapshot --nodes again with this version"}
	}
	all = len(without) == len(pass.Snapshot.Facts)
	return fmt.Sprintf("%s of %s did not serve %s (%s): %s; %s", program, cluster.Count(len(without), "node"), counter,
		check.Names(without), strings.Join(said[:min(3, len(said))], "; "), enable), all
}

// lacking gives what is not known of any node to Lacks, and what is not known of some to Part.
func lacking(runs func(*check.Pass) bool, counter, program, enable string) (lacks, part func(*check.Pass) string) {
	ask := func(whole bool) func(*check.Pass) string {
		return func(pass *check.Pass) string {
			if !runs(pass) {
				return ""
			}
			if why, all := unserved(pass, counter, program, enable); all == whole {
				return why
			}
			return ""
		}
	}
	return ask(true), ask(false)
}
