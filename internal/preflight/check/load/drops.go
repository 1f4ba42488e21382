package load

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed drops.md
var dropsDoc string

// Drops reports nodes whose kernel drops packets now.
func Drops() check.Check {
	return check.Check{
		ID:    "load/drops",
		Title: "A node's kernel drops packets",
		Doc:   dropsDoc,
		Needs: []string{"nodes", "host"},
		Lacks: unsampled,
		Run:   drops,
	}
}

func drops(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		load := facts.Host.Load
		names := slices.Concat([]string{"softnet.dropped", "tcp.ListenDrops", "udp.RcvbufErrors", "udp.SndbufErrors"},
			dropsOfLinks(load))
		now, boot := dropping(load, names...)
		if len(now) == 0 {
			continue
		}
		found = append(found, finding.Finding{ID: "load/drops", Severity: finding.Warn,
			Subject: finding.Subject{Kind: "Node", Name: facts.Node},
			Message: fmt.Sprintf("the kernel dropped packets while the agent looked: %s in %.0f s. Losses of a "+
				"change cannot be told from these",
				strings.Join(now, ", "), load.Seconds),
			Evidence: map[string]any{"seconds": load.Seconds, "dropped": now, "sinceBoot": boot},
			Fix:      "find the busy queue or program first; docs/checks/load-drops.md says what each counter means",
		})
	}
	return found
}
