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

// ClusterCIDR finds a kube-proxy that would take the target's pods for strangers.
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
		return nil // Lacks has said so, or pods stay what they are to it
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
		f.Message += fmt.Sprintf(", and the %d NetworkPolicies that allow by pod would deny them", policies)
	}
	return []finding.Finding{f}
}

// misjudges says why kube-proxy would not know the target's pods as pods; empty when it would.
func misjudges(c check.KubeProxyConfig, pass *check.Pass) string {
	target := pass.Target.Capabilities
	switch c.DetectLocalMode {
	case "", "ClusterCIDR":
		known := check.Prefixes(strings.Split(c.ClusterCIDR, ",")...)
		for _, prefix := range check.Prefixes(pass.Target.PodCIDRs...) {
			if !covered(known, prefix) {
				return fmt.Sprintf("kube-proxy's clusterCIDR %s does not hold the target's pods (%s)", c.ClusterCIDR, prefix)
			}
		}
	case "NodeCIDR":
		if target.CIDRSource != "node" {
			return "kube-proxy takes only addresses of each node's podCIDR for pods, and the target gives others"
		}
	case "BridgeInterface":
		if !step.Matches(target.HostLinks, c.DetectLocal.BridgeInterface) {
			return "kube-proxy takes only what comes from the bridge " + c.DetectLocal.BridgeInterface + " for pods, and the target has none"
		}
	case "InterfaceNamePrefix":
		if !step.Matches(target.HostLinks, c.DetectLocal.InterfaceNamePrefix+"*") {
			return "kube-proxy takes only what comes from links named " + c.DetectLocal.InterfaceNamePrefix + "* for pods, and the target names its links otherwise"
		}
	}
	return ""
}

// covered is true when a range of the same family holds the prefix, or when none is set for the family:
// kube-proxy then takes nobody for a stranger.
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
