package load

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed softirq.md
var softirqDoc string

// Softirq reports nodes whose processors end a round of receiving with packets left.
func Softirq() check.Check {
	return check.Check{
		ID:    "load/softirq",
		Title: "A node's processors have too little time for received packets",
		Doc:   softirqDoc,
		Needs: []string{"nodes", "host"},
		Lacks: unsampled,
		Run:   softirq,
	}
}

func softirq(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		load := facts.Host.Load
		now, boot := dropping(load, "softnet.time_squeeze")
		if len(now) == 0 {
			continue
		}
		squeezes, packets := load.Counters["softnet.time_squeeze"].Sample, load.Counters["softnet.processed"].Sample
		found = append(found, finding.Finding{ID: "load/softirq", Severity: finding.Info,
			Subject: finding.Subject{Kind: "Node", Name: facts.Node},
			Message: fmt.Sprintf("%d times in %.0f s, a processor stopped receiving with packets left, because its "+
				"budget was used up; it received %d packets. If this goes on, receive queues may fill "+
				"and the network card may drop packets",
				squeezes, load.Seconds, packets),
			Evidence: map[string]any{"seconds": load.Seconds, "squeezes": squeezes, "packets": packets,
				"sinceBoot": boot},
			Fix: "on the node, also in /etc/sysctl.d: raise net.core.netdev_budget (default 300) and " +
				"net.core.netdev_budget_usecs, or spread the queues of the network card over more processors"})
	}
	return found
}
