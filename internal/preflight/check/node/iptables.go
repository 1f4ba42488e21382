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

// IPTablesMixed reports nodes with rules in both implementations of iptables.
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
			Message: fmt.Sprintf("on %s both implementations of iptables have rules, legacy and nft (%s): every "+
				"packet traverses both, but a tool sees and cleans only one",
				cluster.Count(len(mixed), "node"), check.Names(mixed)),
			Evidence: map[string]any{"rules": counts},
			Fix: "find out which programs write which rules (iptables-legacy-save, iptables-nft-save on the " +
				"node), and make all use one: update-alternatives --set iptables; a reboot removes rules " +
				"that no program writes any more",
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
			Message: fmt.Sprintf("the rules on %s are in another implementation of iptables than on the rest, which "+
				"use %s (%s): an agent that is configured for the rest fails there",
				cluster.Count(len(few), "node"), other, check.Names(few)),
			Evidence: map[string]any{"nodes": few},
			Fix:      "let the agents detect it (Calico: FELIX_IPTABLESBACKEND=Auto)",
		})
	}
	return found
}
