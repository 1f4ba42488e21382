package cidr

import (
	_ "embed"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed masquerade.md
var masqueradeDoc string

const masqueradeID = "cidr/masquerade"

// Masquerade reports an ip-masq-agent that would hide the target's pods behind their nodes' addresses.
func Masquerade() check.Check {
	return check.Check{
		ID:    masqueradeID,
		Title: "ip-masq-agent masquerades traffic to the target's pods",
		Doc:   masqueradeDoc,
		Needs: []string{"target", "daemonsets", "networkpolicies"},
		Lacks: func(pass *check.Pass) string {
			if set := masqAgent(pass); set != nil {
				if ok, why := pass.Snapshot.Has("configmaps"); !ok {
					return "configmaps: " + why + ", and one contains the ranges of " + set.Name
				}
				if _, err := exempt(pass, set); err != nil {
					return err.Error()
				}
			}
			return ""
		},
		Run: masquerade,
	}
}

// masqAgent returns the DaemonSet of ip-masq-agent, of any cloud. It is nil if there is none, or if pods keep the
// addresses that the agent knows.
func masqAgent(pass *check.Pass) *appsv1.DaemonSet {
	if pass.InPlace() {
		return nil
	}
	at := slices.IndexFunc(pass.Snapshot.DaemonSets, func(set appsv1.DaemonSet) bool {
		return strings.Contains(set.Name, "ip-masq-agent")
	})
	if at < 0 {
		return nil
	}
	return &pass.Snapshot.DaemonSets[at]
}

// exempt returns the ranges that ip-masq-agent does not masquerade: those of its ConfigMap, or its defaults
// (cmd/ip-masq-agent of kubernetes-sigs/ip-masq-agent).
func exempt(pass *check.Pass, set *appsv1.DaemonSet) ([]netip.Prefix, error) {
	ranges := []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}
	for _, container := range set.Spec.Template.Spec.Containers {
		for _, argument := range slices.Concat(container.Command, container.Args) {
			if strings.TrimLeft(argument, "-") == "nomasq-all-reserved-ranges" ||
				strings.TrimLeft(argument, "-") == "nomasq-all-reserved-ranges=true" {
				ranges = append(ranges, "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
					"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4")
			}
		}
	}
	for _, name := range []string{"ip-masq-agent", set.Name} {
		stored := pass.Snapshot.ConfigMap(set.Namespace, name)
		if stored == nil {
			continue
		}
		for key, text := range stored.Data {
			var config struct {
				NonMasqueradeCIDRs []string `json:"nonMasqueradeCIDRs"`
			}
			if err := bounded.Unmarshal([]byte(text), &config); err != nil {
				return nil, fmt.Errorf("%s in the ConfigMap %s/%s cannot be read: %w", key, set.Namespace, name, err)
			}
			if config.NonMasqueradeCIDRs != nil {
				return check.Prefixes(config.NonMasqueradeCIDRs...), nil
			}
		}
	}
	return check.Prefixes(ranges...), nil
}

func masquerade(pass *check.Pass) []finding.Finding {
	set := masqAgent(pass)
	if set == nil {
		return nil
	}
	ranges, err := exempt(pass, set)
	if err != nil {
		return nil // Lacks has reported it
	}
	var hidden []string
	for _, prefix := range check.Prefixes(pass.Target.PodCIDRs...) {
		if prefix.Addr().Is4() && !slices.ContainsFunc(ranges,
			func(r netip.Prefix) bool { return check.Covers(r, prefix) }) {
			hidden = append(hidden, prefix.String())
		}
	}
	if len(hidden) == 0 {
		return nil
	}
	f := finding.Finding{
		ID: masqueradeID, Severity: finding.Warn,
		Subject: finding.Subject{Kind: "DaemonSet", Namespace: set.Namespace, Name: set.Name},
		Message: fmt.Sprintf("it masquerades traffic from pods to %s, the target's range: pods see nodes' "+
			"addresses instead of each other's",
			strings.Join(hidden, ", ")),
		Evidence: map[string]any{"target": hidden, "nonMasqueradeCIDRs": texts(ranges)},
		Fix: fmt.Sprintf("add %s to nonMasqueradeCIDRs: kubectl -n %s edit configmap ip-masq-agent (the agent "+
			"reads it again within a minute)",
			strings.Join(hidden, ", "), shell.Word(set.Namespace)),
	}
	if n := len(pass.Snapshot.NetworkPolicies); n > 0 {
		f.Severity = finding.Block
		f.Message += fmt.Sprintf(", and the %d NetworkPolicies deny them if they allow by pod", n)
	}
	return []finding.Finding{f}
}

func texts(prefixes []netip.Prefix) []string {
	var all []string
	for _, prefix := range prefixes {
		all = append(all, prefix.String())
	}
	return all
}
