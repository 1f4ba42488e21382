package load

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed conntrack.md
var conntrackDoc string

// full is the share of the table from which on it is reported: that of the alert NodeHighNumberConntrackEntriesUsed of
// node_exporter's mixin.
const full = 0.75

// Conntrack reports nodes whose table of connections is nearly full, or refuses connections.
func Conntrack() check.Check {
	return check.Check{
		ID:    "load/conntrack",
		Title: "A node's table of connections is nearly full",
		Doc:   conntrackDoc,
		Needs: []string{"nodes", "host"},
		Lacks: unsampled,
		Run:   conntrack,
	}
}

func conntrack(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		load := facts.Host.Load
		now, boot := dropping(load, "conntrack.drop", "conntrack.early_drop", "conntrack.insert_failed")
		f := finding.Finding{ID: "load/conntrack", Severity: finding.Warn,
			Subject:  finding.Subject{Kind: "Node", Name: facts.Node},
			Evidence: map[string]any{"entries": load.Conntrack, "most": load.Most, "refusedSinceBoot": boot},
			Fix: fmt.Sprintf("on the node, also in /etc/sysctl.d: net.netfilter.nf_conntrack_max=%d; kube-proxy "+
				"sets it too (conntrack.maxPerCore)", 2*load.Most)}
		switch {
		case load.Most == 0:
			continue // not loaded: nothing is tracked
		case float64(load.Conntrack) >= full*float64(load.Most):
			f.Message = fmt.Sprintf("%d of %d connections are tracked (%d %%): when the table is full, the kernel "+
				"drops the first packet of every new connection",
				load.Conntrack, load.Most, 100*load.Conntrack/load.Most)
		case len(now) > 0:
			f.Message = fmt.Sprintf("connections were refused while the agent looked (%s in %.0f s), although %d of "+
				"%d are tracked: two packets claimed one port, or the table was full for a moment",
				strings.Join(now, ", "), load.Seconds, load.Conntrack, load.Most)
			f.Fix = "on the node: conntrack -S shows which processor counts; net.netfilter.nf_conntrack_max " +
				"is the size of the table"
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}
