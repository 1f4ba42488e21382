package felix

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed kube_proxy_mode.md
var proxyModeDoc string

// KubeProxyMode reports a kube-proxy whose mode does not match Felix'.
func KubeProxyMode() check.Check {
	return check.Check{
		ID:    "felix/kube-proxy-mode",
		Title: "kube-proxy's mode does not match Felix' data plane",
		Doc:   proxyModeDoc,
		Needs: []string{"daemonsets", "configmaps"},
		Lacks: func(pass *check.Pass) string {
			if why := lacks(pass); why != "" || len(agents(pass)) == 0 {
				return why
			}
			if _, err := pass.KubeProxy(); err != nil {
				return err.Error()
			}
			return ""
		},
		Run: proxyMode,
	}
}

func proxyMode(pass *check.Pass) []finding.Finding {
	if len(agents(pass)) == 0 {
		return nil
	}
	proxy, err := pass.KubeProxy()
	if err != nil {
		return nil // Lacks has reported it
	}
	mode, where := nftablesMode(pass)
	brings := false // whether the change causes the mismatch
	if to := asked(pass); to != "" {
		brings, mode, where = !strings.EqualFold(to, mode), to, "as this change sets it"
	}
	f := finding.Finding{
		ID: "felix/kube-proxy-mode", Severity: finding.Warn,
		Subject:  finding.Subject{Kind: "ConfigMap", Namespace: "kube-system", Name: "kube-proxy"},
		Evidence: map[string]any{"kubeProxy": proxy.Mode, "nftablesMode": mode, "from": where},
	}
	enabled := strings.EqualFold(mode, "Enabled")
	switch {
	case proxy.Mode == "ipvs":
		f.Message = "kube-proxy runs in IPVS mode: Felix restarts when the link kube-ipvs0 appears or disappears; " +
			"Theseus was not run with Services on that link, and Kubernetes is removing IPVS"
		f.Fix = "switch kube-proxy to iptables or nftables in a separate change, before this one"
	case strings.EqualFold(mode, "Auto"):
		f.Severity = finding.Info
		f.Message = fmt.Sprintf("Felix' nftablesMode is Auto (%s): it follows kube-proxy, so a change of "+
			"kube-proxy's mode also switches the data plane of every node that is restarted", where)
		f.Fix = "set nftablesMode to Enabled or Disabled before you change kube-proxy"
	case proxy.Mode == "nftables" && !enabled:
		f.Message = fmt.Sprintf("kube-proxy runs in nftables mode, but Felix does not (nftablesMode %s, %s): Calico "+
			"supports only both or neither", mode, where)
		f.Fix = "set nftablesMode: Enabled in the FelixConfiguration of the target, or run kube-proxy in iptables mode"
	case proxy.Mode != "nftables" && enabled:
		f.Message = fmt.Sprintf("Felix runs in nftables mode (%s), but kube-proxy in mode %s: Calico supports only "+
			"both or neither", where, orIptables(proxy.Mode))
		f.Fix = "run kube-proxy in nftables mode, or set nftablesMode: Disabled"
		if brings {
			f.Severity = finding.Block
			f.Fix = "switch kube-proxy to nftables mode first, in a separate change"
		}
	default:
		return nil
	}
	return []finding.Finding{f}
}

// asked returns the nftablesMode that the change sets; empty if it sets none.
func asked(pass *check.Pass) string {
	field, value, _ := strings.Cut(pass.Change.Flag, "=")
	switch {
	case pass.Change.Dataplane == "nftables":
		return "Enabled"
	case pass.Change.Dataplane == "iptables":
		return "Disabled"
	case strings.TrimPrefix(field, "calico/") == "nftablesMode":
		return value
	}
	return ""
}

func orIptables(mode string) string {
	if mode == "" {
		return "iptables"
	}
	return mode
}

// nftablesMode returns the value that applies on most nodes: of the environment, of the FelixConfiguration for all
// nodes, or the default.
func nftablesMode(pass *check.Pass) (mode, where string) {
	p, _ := table(pass).ByField("nftablesMode")
	mode, where = p.Default, "the default of "+table(pass).Release
	for _, s := range settings(pass) {
		if s.parameter.Name == p.Name && s.subject.Name == "default" {
			mode, where = shown(s.value), "FelixConfiguration default"
		}
	}
	for _, v := range variables(pass) {
		if v.parameter.Name == p.Name && v.known {
			mode, where = v.value, v.name
		}
	}
	return mode, where
}
