package node

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed forwarding.md
var forwardingDoc string

// Forwarding reports nodes whose kernel drops packets between the two networks.
func Forwarding() check.Check {
	return check.Check{
		ID:    "node/forwarding",
		Title: "A node's kernel drops packets that return on another path, or that no rule accepts",
		Doc:   forwardingDoc,
		Needs: []string{"nodes", "facts", "target"},
		Run:   forwarding,
	}
}

func forwarding(pass *check.Pass) []finding.Finding {
	return slices.Concat(strictFilters(pass), drops(pass))
}

// strictFilters reports links that drop answers which return on another path than their requests took.
func strictFilters(pass *check.Pass) []finding.Finding {
	back := "through the other network's link"
	switch {
	case pass.Change.Encapsulation != "":
		back = "through the tunnel to requests without it, or the reverse,"
	case pass.OneNetwork():
		return nil // packets keep their paths
	}
	var found []finding.Finding
	for _, facts := range pass.Snapshot.Facts {
		var strict []string
		for _, name := range slices.Sorted(maps.Keys(facts.RPFilter)) {
			if facts.RPFilter[name] == 1 {
				strict = append(strict, name)
			}
		}
		if len(strict) > 0 {
			found = append(found, finding.Finding{
				ID: "node/forwarding", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: facts.Node},
				Message: fmt.Sprintf("rp_filter is strict (%s): answers that return %s are dropped. Theseus "+
					"sets it to loose on the links that it knows, but a program that resets it during "+
					"the change interrupts paths",
					strings.Join(strict, ", "), back),
				Evidence: map[string]any{"strict": strict},
				Fix: "on the node, also in /etc/sysctl.d: net.ipv4.conf.all.rp_filter=2 and " +
					"net.ipv4.conf.default.rp_filter=2",
			})
		}
	}
	return found
}

// drops reports nodes whose iptables drop packets in FORWARD that no rule accepts.
func drops(pass *check.Pass) []finding.Finding {
	dropping := slices.DeleteFunc(slices.Clone(pass.Snapshot.Facts), func(f cluster.NodeFacts) bool {
		return f.ForwardPolicy != "DROP"
	})
	if len(dropping) == 0 {
		return nil
	}
	found, told := unheard(pass, dropping)
	for _, facts := range dropping {
		if pass.OneNetwork() || slices.Contains(told, facts.Node) {
			continue
		}
		f := finding.Finding{
			ID: "node/forwarding", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: facts.Node},
			Message: "the policy of FORWARD is DROP: when the present network's rules are removed, packets are " +
				"lost that the target's own rules do not accept",
			Evidence: map[string]any{"forward": facts.ForwardPolicy},
			Fix: "find the program that sets it (Docker does), and on the node: iptables -P FORWARD ACCEPT, " +
				"or add rules for the other traffic that it forwards",
		}
		if pass.Target.CNI != "calico" {
			f.Severity = finding.Block
			f.Message = "the policy of FORWARD is DROP, and it is unknown whether " + pass.Target.CNI +
				" accepts its pods' packets there"
		}
		found = append(found, f)
	}
	return found
}
