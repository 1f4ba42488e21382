package bgp

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed not_started.md
var notStartedDoc string

// NotStarted reports that BIRD does not run although routes or sessions need it.
func NotStarted() check.Check {
	return check.Check{
		ID:    "bgp/not-started",
		Title: "BIRD does not run, but pools or peers need it",
		Doc:   notStartedDoc,
		Needs: []string{"daemonsets"},
		Lacks: func(pass *check.Pass) string {
			if why := lacking("ippools")(pass); why != "" || !pass.Snapshot.UsesCalico() {
				return why
			}
			return graphsOf(pass).before.Unknown
		},
		Run: notStarted,
	}
}

func notStarted(pass *check.Pass) []finding.Finding {
	in := graphsOf(pass).before
	if !pass.Snapshot.UsesCalico() || in.Started() {
		return nil
	}
	base := finding.Finding{
		ID:       "bgp/not-started",
		Evidence: map[string]any{"CALICO_NETWORKING_BACKEND": in.Backend},
		Fix: "set CALICO_NETWORKING_BACKEND of calico-node to bird (with the operator: kubectl patch " +
			"installation default --type merge " +
			`-p '{"spec":{"calicoNetwork":{"bgp":"Enabled"}}}'), which restarts calico-node on every node`,
	}
	var found []finding.Finding
	for _, p := range in.Pools {
		if p.Felix || p.Disabled {
			continue
		}
		f := base
		f.Severity, f.Subject = finding.Block, finding.Subject{Kind: "IPPool", Name: p.Name}
		f.Message = fmt.Sprintf("its pods cannot reach pods on other nodes: BIRD programs the routes of "+
			"this pool (encapsulation: %s), but BIRD runs on no node, because CALICO_NETWORKING_BACKEND is %s. "+
			"CLUSTER_TYPE does not start BIRD",
			p.Encapsulation, in.Backend)
		found = append(found, f)
	}
	for _, p := range in.Peers {
		f := base
		f.Severity, f.Subject = finding.Warn, finding.Subject{Kind: "BGPPeer", Name: p.Name}
		f.Message = fmt.Sprintf("it makes no session: BIRD runs on no node, because CALICO_NETWORKING_BACKEND is %s",
			in.Backend)
		found = append(found, f)
	}
	return found
}
