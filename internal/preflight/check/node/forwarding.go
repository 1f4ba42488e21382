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

// Forwarding finds nodes whose kernel drops what two networks send each other.
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

// strictFilters finds links that take no answers which come another way than requests go.
func strictFilters(pass *check.Pass) []finding.Finding {
	back := "through the other network's link"
	switch {
	case pass.Change.Encapsulation != "":
		back = "through the tunnel while requests go without it, or the other way round,"
	case pass.OneNetwork():
		return nil // packets go and come as they do today
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
				Message: fmt.Sprintf("rp_filter is strict (%s): answers that come back %s are dropped. Theseus sets it "+
					"loose on the links that it knows, and whatever sets it again in the meantime cuts paths", strings.Join(strict, ", "), back),
				Evidence: map[string]any{"strict": strict},
				Fix:      "on the node, also in /etc/sysctl.d: net.ipv4.conf.all.rp_filter=2 and net.ipv4.conf.default.rp_filter=2",
			})
		}
	}
	return found
}

// drops finds nodes whose iptables drop in FORWARD what nobody accepts.
func drops(pass *check.Pass) []finding.Finding {
	dropping := slices.DeleteFunc(slices.Clone(pass.Snapshot.Facts), func(f cluster.NodeFacts) bool { return f.ForwardPolicy != "DROP" })
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
			Message:  "the policy of FORWARD is DROP: what no network's own rules accept is lost, once the present network's rules are gone",
			Evidence: map[string]any{"forward": facts.ForwardPolicy},
			Fix:      "find out who sets it (Docker does), and on the node: iptables -P FORWARD ACCEPT, or rules for what else is forwarded there",
		}
		if pass.Target.CNI != "calico" {
			f.Severity = finding.Block
			f.Message = "the policy of FORWARD is DROP, and it is not known that " + pass.Target.CNI + " accepts its pods' packets there"
		}
		found = append(found, f)
	}
	return found
}
