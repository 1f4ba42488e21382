// Package kubeproxy checks the configuration of kube-proxy.
package kubeproxy

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/finding"
)

//go:embed cluster_cidr.md
var clusterCIDRDoc string

const id = "kubeproxy/cluster-cidr"

// ClusterCIDR finds a kube-proxy that would take the target's pods for strangers.
func ClusterCIDR() check.Check {
	return check.Check{
		ID:    id,
		Title: "kube-proxy would take the target's pods for clients from outside",
		Doc:   clusterCIDRDoc,
		Needs: []string{"target", "networkpolicies"},
		Lacks: func(pass *check.Pass) string {
			_, err := configOf(pass.Snapshot)
			if err != nil {
				return err.Error()
			}
			return ""
		},
		Run: clusterCIDR,
	}
}

// config is the part of KubeProxyConfiguration that tells pods from other clients.
type config struct {
	ClusterCIDR     string `json:"clusterCIDR"`
	DetectLocalMode string `json:"detectLocalMode"`
	Mode            string `json:"mode"`
	DetectLocal     struct {
		BridgeInterface     string `json:"bridgeInterface"`
		InterfaceNamePrefix string `json:"interfaceNamePrefix"`
	} `json:"detectLocal"`
}

// configOf finds the configuration in the ConfigMap of kubeadm, or in the flags of the DaemonSet.
func configOf(snapshot *cluster.Snapshot) (config, error) {
	var c config
	if stored := snapshot.ConfigMap("kube-system", "kube-proxy"); stored != nil {
		if err := yaml.Unmarshal([]byte(stored.Data["config.conf"]), &c); err != nil {
			return c, fmt.Errorf("config.conf in the ConfigMap kube-system/kube-proxy cannot be read: %w", err)
		}
		return c, nil
	}
	set := snapshot.DaemonSet("kube-system", "kube-proxy")
	if set == nil {
		return c, errors.New("neither a ConfigMap nor a DaemonSet kube-system/kube-proxy is there to read its configuration from")
	}
	for _, container := range set.Spec.Template.Spec.Containers {
		for _, argument := range append(container.Command, container.Args...) {
			if strings.HasPrefix(argument, "--config") {
				return c, errors.New("the DaemonSet kube-system/kube-proxy reads its configuration from a file that is not in the input")
			}
			if value, ok := strings.CutPrefix(argument, "--cluster-cidr="); ok {
				c.ClusterCIDR = value
			}
			if value, ok := strings.CutPrefix(argument, "--detect-local-mode="); ok {
				c.DetectLocalMode = value
			}
		}
	}
	return c, nil
}

func clusterCIDR(pass *check.Pass) []finding.Finding {
	c, err := configOf(pass.Snapshot)
	if err != nil {
		return nil // Lacks has said so
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
func misjudges(c config, pass *check.Pass) string {
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
		if !check.Matches(target.HostLinks, c.DetectLocal.BridgeInterface) {
			return "kube-proxy takes only what comes from the bridge " + c.DetectLocal.BridgeInterface + " for pods, and the target has none"
		}
	case "InterfaceNamePrefix":
		if !check.Matches(target.HostLinks, c.DetectLocal.InterfaceNamePrefix+"*") {
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
