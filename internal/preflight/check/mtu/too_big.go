// Package mtu checks whether pods' packets fit the links and the paths between nodes.
package mtu

import (
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed too_big.md
var tooBigDoc string

// TooBig reports pods whose packets would not fit the nodes' links.
func TooBig() check.Check {
	return check.Check{
		ID:    "mtu/too-big",
		Title: "Pods' packets exceed the links' MTU, or the two networks have different MTUs",
		Doc:   tooBigDoc,
		Needs: []string{"source", "target", "nodes"},
		Lacks: func(pass *check.Pass) string {
			if pass.Target.Capabilities.MTU == 0 && len(pass.Snapshot.Facts) == 0 && !asToday(pass) {
				return "the target takes its MTU from the nodes' links, and the input lacks facts of the nodes"
			}
			return ""
		},
		Run: tooBig,
	}
}

// asToday reports whether the size of packets stays the same: one network, with the same MTU and encapsulation.
func asToday(pass *check.Pass) bool {
	source, target := pass.Source.Capabilities, pass.Target.Capabilities
	return pass.OneNetwork() && source.MTU == target.MTU && source.Overhead == target.Overhead
}

func tooBig(pass *check.Pass) []finding.Finding {
	if asToday(pass) {
		return nil
	}
	found := believed(pass)
	facts := pass.Facts()
	for i := range pass.Snapshot.Nodes {
		n := &pass.Snapshot.Nodes[i]
		found = append(found, node(pass, n, facts[n.Name].Uplink(n))...)
	}
	if len(pass.Snapshot.Facts) == 0 {
		subject := finding.Subject{Kind: "Network", Name: pass.Target.CNI}
		found = append(found, differ(pass, subject, pass.Source.Capabilities.MTU, pass.Target.Capabilities.MTU)...)
	}
	return found
}

// node compares the MTU of one node's link with the packets of pods on both networks.
func node(pass *check.Pass, node *corev1.Node, link *cluster.Link) []finding.Finding {
	if link == nil {
		return nil
	}
	source, target := pass.Source.Capabilities, pass.Target.Capabilities
	subject := finding.Subject{Kind: "Node", Name: node.Name}
	if most := link.MTU - target.Overhead; target.MTU > most {
		return []finding.Finding{{
			ID: "mtu/too-big", Severity: finding.Block, Subject: subject,
			Message: fmt.Sprintf("the target's pods send packets of %d bytes, with encapsulation %d, but "+
				"the link %s accepts only %d: small requests work but large responses hang",
				target.MTU, target.MTU+target.Overhead, link.Name, link.MTU),
			Evidence: map[string]any{"link": link.Name, "linkMTU": link.MTU, "podMTU": target.MTU,
				"overhead": target.Overhead},
			Fix: fmt.Sprintf("set the target's MTU to %d or less in its manifest (Calico: veth_mtu in the "+
				"ConfigMap calico-config)", most),
		}}
	}
	return differ(pass, subject, fixedOr(source.MTU, link.MTU-source.Overhead),
		fixedOr(target.MTU, link.MTU-target.Overhead))
}

func fixedOr(mtu, otherwise int) int {
	if mtu > 0 {
		return mtu
	}
	return otherwise
}

// differ compares the MTU of pods on the two networks.
func differ(pass *check.Pass, subject finding.Subject, source, target int) []finding.Finding {
	if source <= 0 || target <= 0 || source == target {
		return nil
	}
	f := finding.Finding{
		ID: "mtu/too-big", Severity: finding.Warn, Subject: subject,
		Evidence: map[string]any{"source": source, "target": target},
	}
	if target < source {
		f.Message = fmt.Sprintf("pods have an MTU of %d on %s and %d on %s: large UDP packets that fit "+
			"today will be fragmented or lost",
			source, pass.Source.CNI, target, pass.Target.CNI)
		f.Fix = "make sure that no workload sends UDP packets larger than the new MTU; TCP adapts by itself"
	} else {
		f.Message = fmt.Sprintf("pods have an MTU of %d on %s and %d on %s: while both networks are live, large UDP "+
			"packets from new pods to old ones do not fit",
			source, pass.Source.CNI, target, pass.Target.CNI)
		f.Fix = fmt.Sprintf("set the target's MTU to %d for the duration of the change", source)
	}
	return []finding.Finding{f}
}

// believed reports pods whose own links have a larger MTU than the network carries between nodes.
func believed(pass *check.Pass) []finding.Finding {
	source, target := pass.Source.Capabilities, pass.Target.Capabilities
	if source.LinkMTU == 0 {
		return nil
	}
	f := finding.Finding{
		ID: "mtu/too-big", Severity: finding.Warn, Subject: finding.Subject{Kind: "Network", Name: pass.Source.CNI},
		Message: fmt.Sprintf("the links of pods on %s have an MTU of %d bytes, but the network carries only %d "+
			"between nodes", pass.Source.CNI, source.LinkMTU, source.MTU),
		Evidence: map[string]any{"link": source.LinkMTU, "source": source.MTU, "target": target.MTU},
		Fix: "make sure that no workload needs larger unfragmented UDP packets, which today work only " +
			"between pods on the same node; TCP adapts by itself",
	}
	if target.MTU > 0 {
		f.Message += fmt.Sprintf(": pods on %s get links of %d, so larger packets between pods on the same node "+
			"will be fragmented or refused",
			pass.Target.CNI, target.MTU)
	}
	return []finding.Finding{f}
}
