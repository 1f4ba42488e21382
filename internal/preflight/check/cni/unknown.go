package cni

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed unknown.md
var unknownDoc string

const unknownID = "cni/unknown"

// untouched is the fix for a network that Theseus does not change.
const untouched = "leave it as it is. To change it, " + cni.Elsewhere

// Unknown reports networks and plugins that Theseus does not know.
func Unknown() check.Check {
	return check.Check{
		ID:    unknownID,
		Title: "A network, or a part of one, that Theseus does not know",
		Doc:   unknownDoc,
		Needs: []string{"nodes", "daemonsets"},
		Run:   unknown,
	}
}

func unknown(pass *check.Pass) []finding.Finding {
	known := networks(pass)
	strangers := cni.Strangers(pass.Snapshot, known)
	if len(known) == 0 {
		return nothingKnown(pass, strangers)
	}
	var found []finding.Finding
	for _, network := range known {
		if network.Untried == "" || network == pass.Target {
			continue
		}
		f := finding.Finding{ID: unknownID, Severity: finding.Info,
			Subject: finding.Subject{Kind: "Network", Name: network.CNI}, Message: network.Untried, Fix: untouched}
		if pass.Change.To != "" {
			f.Severity = finding.Block
		}
		found = append(found, f)
	}
	for _, stranger := range strangers {
		found = append(found, finding.Finding{
			ID: unknownID, Severity: finding.Warn, Subject: finding.Subject{Kind: "Network", Name: known[0].CNI},
			Message: fmt.Sprintf("in addition to %s, %s: it is a second network, or is chained to the first, and how "+
				"a change would affect it is unknown",
				known[0].CNI, stranger),
			Fix: "find out what it is, and leave it as it is; a chained plugin (Multus, a service mesh) must be " +
				"set up for the new network too",
		})
	}
	return found
}

// networks returns the detected networks and the present one, since the source in a plan may not be visible in the API.
func networks(pass *check.Pass) []*cni.Installation {
	all := slices.Clone(pass.Found)
	if pass.Source != nil &&
		!slices.ContainsFunc(all, func(n *cni.Installation) bool { return n.CNI == pass.Source.CNI }) {
		all = append(all, pass.Source)
	}
	return all
}

// nothingKnown blocks the change of an unknown network.
func nothingKnown(pass *check.Pass, strangers []string) []finding.Finding {
	if len(pass.Snapshot.Nodes) == 0 {
		return nil
	}
	f := finding.Finding{
		ID: unknownID, Severity: finding.Warn, Subject: finding.Subject{Kind: "Network", Name: "unknown"},
		Message: "no network that Theseus changes is in this cluster",
		Fix:     untouched,
	}
	if pass.Change.To != "" {
		f.Severity = finding.Block
	}
	if len(strangers) > 0 {
		f.Message += ", but " + strings.Join(strangers, "; ")
		f.Evidence = map[string]any{"seen": strangers}
	}
	if len(pass.Snapshot.Facts) == 0 {
		f.Fix = "look at the nodes too, since a network of files is visible only there: " +
			"theseus snapshot --nodes --agent-image IMAGE -o snapshot.json; " + f.Fix
	}
	return []finding.Finding{f}
}
