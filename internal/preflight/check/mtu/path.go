package mtu

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed path.md
var pathDoc string

// Path reports paths between nodes that accept smaller packets than the nodes' links.
func Path() check.Check {
	return check.Check{
		ID:    "mtu/path",
		Title: "The path between two nodes drops packets that their links accept",
		Doc:   pathDoc,
		Needs: []string{"source", "target", "nodes", "host"},
		Lacks: func(pass *check.Pass) string {
			for _, facts := range pass.Snapshot.Facts {
				for _, path := range facts.Host.Paths {
					if path.MTU > 0 {
						return ""
					}
				}
			}
			if len(pass.Snapshot.Nodes) < 2 {
				return ""
			}
			return "no node answered another node's ping, so no path MTU could be measured"
		},
		Run: paths,
	}
}

func paths(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	var silent []string
	for _, facts := range pass.Snapshot.Facts {
		worst, unanswered := -1, 0
		for i, path := range facts.Host.Paths {
			switch {
			case path.MTU == 0:
				unanswered++
			case path.MTU < path.Link && (worst < 0 || path.MTU < facts.Host.Paths[worst].MTU):
				worst = i
			}
		}
		if unanswered > 0 {
			silent = append(silent, facts.Node)
		}
		if worst < 0 {
			continue
		}
		path := facts.Host.Paths[worst]
		f := finding.Finding{
			ID: "mtu/path", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: facts.Node},
			Message: fmt.Sprintf("its link accepts packets of %d bytes, but the path to %s only %d: programs "+
				"that rely on the link's MTU lose large packets there", path.Link, path.To, path.MTU),
			Evidence: map[string]any{"to": path.To, "pathMTU": path.MTU, "linkMTU": path.Link},
			Fix: fmt.Sprintf(
				"find the cause between them (a tunnel, a VPN), or set the MTU of the node's link to %d", path.MTU),
		}
		for _, one := range []struct {
			network *cni.Installation
			level   finding.Severity
			when    string
		}{{pass.Source, finding.Warn, "today"}, {pass.Target, finding.Block, "during the change and after it"}} {
			caps := one.network.Capabilities
			sent := fixedOr(caps.MTU, path.Link-caps.Overhead) + caps.Overhead
			if sent <= path.MTU || one.network == pass.Target && asToday(pass) {
				continue
			}
			f.Severity = one.level
			f.Message += fmt.Sprintf("; pods on %s send up to %d with encapsulation: small requests work "+
				"but large responses hang, %s",
				one.network.CNI, sent, one.when)
			if one.network == pass.Target {
				f.Evidence["targetSends"] = sent
				f.Fix = fmt.Sprintf("set the target's MTU to %d or less in its manifest (Calico: veth_mtu in the "+
					"ConfigMap calico-config)", path.MTU-caps.Overhead)
			}
		}
		found = append(found, f)
	}
	if len(silent) > 0 {
		found = append(found, finding.Finding{
			ID: "mtu/path", Severity: finding.Info, Subject: finding.Subject{Kind: "Node", Name: silent[0]},
			Message: fmt.Sprintf("some pings between nodes were not answered, so these paths were not measured "+
				"(from %s)", check.Names(silent)),
			Evidence: map[string]any{"nodes": silent},
			Fix:      "allow ICMP echo between nodes: path MTU discovery needs ICMP too",
		})
	}
	return found
}
