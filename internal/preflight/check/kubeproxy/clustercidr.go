// Package kubeproxy checks the configuration of kube-proxy.
package kubeproxy

import (
	_ "embed"
	"fmt"
	"net/netip"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

//go:embed cluster_cidr.md
var clusterCIDRDoc string

const id = "kubeproxy/cluster-cidr"

// ClusterCIDR reports a kube-proxy that would mistake the target's pods for external clients.
func ClusterCIDR() check.Check {
	return check.Check{
		ID:    id,
		Title: "kube-proxy would mistake the target's pods for external clients",
		Doc:   clusterCIDRDoc,
		Needs: []string{"target", "networkpolicies"},
		Lacks: func(pass *check.Pass) string {
			if _, err := pass.KubeProxy(); err != nil && !pass.InPlace() {
				return err.Error()
			}
			return ""
		},
		Run: clusterCIDR,
	}
}

func clusterCIDR(pass *check.Pass) []finding.Finding {
	c, err := pass.KubeProxy()
	if err != nil || pass.InPlace() {
		return nil // Lacks has reported it, or nothing changes for kube-proxy
	}
	why := misjudges(c, pass)
	if why == "" {
		return nil
	}
	f := finding.Finding{
		ID: id, Severity: finding.Warn,
		Subject: finding.Subject{Kind: "ConfigMap", Namespace: "kube-system", Name: "kube-proxy"},
		Message: why + ": requests of the target's pods to Services arrive with a node's address",
		Evidence: map[string]any{"clusterCIDR": c.ClusterCIDR, "detectLocalMode": c.DetectLocalMode,
			"mode": c.Mode, "target": pass.Target.PodCIDRs},
		Fix: `kubectl -n kube-system edit configmap kube-proxy (set clusterCIDR: "" and detectLocalMode: ClusterCIDR), then: ` +
			"kubectl -n kube-system rollout restart daemonset kube-proxy",
	}
	if policies := len(pass.Snapshot.NetworkPolicies); policies > 0 {
		f.Severity = finding.Block
		f.Message += fmt.Sprintf(", and the %d NetworkPolicies would deny them if they allow by pod", policies)
	}
	return []finding.Finding{f}
}

// misjudges returns why kube-proxy would not recognise the target's pods; empty if it would.
func misjudges(c check.KubeProxyConfig, pass *check.Pass) string {
	target := pass.Target.Capabilities
	switch c.DetectLocalMode {
	case "", "ClusterCIDR":
		known := check.Prefixes(strings.Split(c.ClusterCIDR, ",")...)
		for _, prefix := range check.Prefixes(pass.Target.PodCIDRs...) {
			if !covered(known, prefix) {
				return fmt.Sprintf("kube-proxy's clusterCIDR %s does not contain the target's pods (%s)",
					c.ClusterCIDR, prefix)
			}
		}
	case "NodeCIDR":
		if target.CIDRSource != "node" {
			return "kube-proxy recognises pods by each node's podCIDR, but the target assigns other addresses"
		}
	case "BridgeInterface":
		if !step.Matches(target.HostLinks, c.DetectLocal.BridgeInterface) {
			return "kube-proxy recognises pods by the bridge " + c.DetectLocal.BridgeInterface +
				", but the target has no such bridge"
		}
	case "InterfaceNamePrefix":
		if !step.Matches(target.HostLinks, c.DetectLocal.InterfaceNamePrefix+"*") {
			return "kube-proxy recognises pods by links named " + c.DetectLocal.InterfaceNamePrefix +
				"*, but the target's links have other names"
		}
	}
	return ""
}

// covered reports whether a range of the same family contains the prefix, or no range is set for the family:
// kube-proxy then masquerades no pod.
func covered(known []netip.Prefix, prefix netip.Prefix) bool {
	set := false
	for _, k := range known {
		if k.Addr().Is4() != prefix.Addr().Is4() {
			continue
		}
		if set = true; check.Covers(k, prefix) {
			return true
		}
	}
	return !set
}
