package node

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed iptables_mixed.md
var iptablesMixedDoc string

// IPTablesMixed finds nodes with rules in both implementations of iptables.
func IPTablesMixed() check.Check {
	return check.Check{
		ID:    "node/iptables-mixed",
		Title: "A node has iptables rules in both of the kernel's tables, legacy and nft",
		Doc:   iptablesMixedDoc,
		Needs: []string{"nodes", "host"},
		Run:   iptablesMixed,
	}
}

func iptablesMixed(pass *check.Pass) []finding.Finding {
	var mixed []string
	counts := map[string]any{}
	kinds := map[string][]string{}
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		legacy, nft := facts.Host.IPTables["legacy"], facts.Host.IPTables["nft"]
		switch {
		case legacy > 0 && nft > 0:
			mixed = append(mixed, facts.Node)
			counts[facts.Node] = facts.Host.IPTables
		case legacy > 0:
			kinds["legacy"] = append(kinds["legacy"], facts.Node)
		case nft > 0:
			kinds["nft"] = append(kinds["nft"], facts.Node)
		}
	}
	var found []finding.Finding
	if len(mixed) > 0 {
		found = append(found, finding.Finding{
			ID: "node/iptables-mixed", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: mixed[0]},
			Message: fmt.Sprintf("on %s rules are in both implementations of iptables, legacy and nft (%s): every packet passes both, and a tool "+
				"sees and cleans only one of them", cluster.Count(len(mixed), "node"), check.Names(mixed)),
			Evidence: map[string]any{"rules": counts},
			Fix: "find out who writes which (iptables-legacy-save, iptables-nft-save on the node), and let all use one: update-alternatives --set iptables; " +
				"rules that nobody writes any more go with a reboot",
		})
	}
	if len(kinds) == 2 {
		few := kinds["legacy"]
		other := "nft"
		if len(kinds["nft"]) < len(few) {
			few, other = kinds["nft"], "legacy"
		}
		found = append(found, finding.Finding{
			ID: "node/iptables-mixed", Severity: finding.Info, Subject: finding.Subject{Kind: "Node", Name: few[0]},
			Message: fmt.Sprintf("on %s it is the other implementation of iptables than on the rest, which use %s (%s): agents that choose by the first "+
				"node they were tried on fail there", cluster.Count(len(few), "node"), other, check.Names(few)),
			Evidence: map[string]any{"nodes": few},
			Fix:      "leave the choice to the agents (Calico: FELIX_IPTABLESBACKEND=Auto)",
		})
	}
	return found
}
