package cidr

import (
	_ "embed"
	"fmt"
	"net/netip"
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed family.md
var familyDoc string

// Family reports an address family that pods have now and would not have on the target.
func Family() check.Check {
	return check.Check{
		ID:    "cidr/family",
		Title: "Pods would lose an address family (IPv4 or IPv6)",
		Doc:   familyDoc,
		Needs: []string{"target", "pods", "services"},
		Lacks: func(pass *check.Pass) string {
			if len(check.Prefixes(pass.Target.PodCIDRs...)) == 0 {
				return "the range of the target's pods is unknown (--pod-cidr)"
			}
			return ""
		},
		Run: family,
	}
}

func family(pass *check.Pass) []finding.Finding {
	if pass.InPlace() {
		return nil // pods keep their addresses
	}
	targets := check.Prefixes(pass.Target.PodCIDRs...)
	var found []finding.Finding
	for _, four := range []bool{true, false} {
		if slices.ContainsFunc(targets, func(p netip.Prefix) bool { return p.Addr().Is4() == four }) {
			continue
		}
		name := map[bool]string{true: "IPv4", false: "IPv6"}[four]
		pods := 0
		for i := range pass.Snapshot.Pods {
			pod := &pass.Snapshot.Pods[i]
			if !check.Moves(pod) {
				continue
			}
			for _, ip := range pod.Status.PodIPs {
				if address, err := netip.ParseAddr(ip.IP); err == nil && address.Is4() == four {
					pods++
				}
			}
		}
		services := 0
		for i := range pass.Snapshot.Services {
			for _, ip := range pass.Snapshot.Services[i].Spec.ClusterIPs {
				if address, err := netip.ParseAddr(ip); err == nil && address.Is4() == four {
					services++
				}
			}
		}
		if pods == 0 {
			continue
		}
		found = append(found, finding.Finding{
			ID: "cidr/family", Severity: finding.Block,
			Subject: finding.Subject{Kind: "Network", Name: pass.Target.CNI},
			Message: fmt.Sprintf("the target's ranges have no %s addresses: %s would lose theirs when "+
				"recreated, and %d Services would have no endpoints at theirs",
				name, cluster.Count(pods, "pod"), services),
			Evidence: map[string]any{"family": name, "pods": pods, "services": services,
				"target": pass.Target.PodCIDRs},
			Fix: "give the target a range of each family; so far Theseus plans only IPv4 ranges",
		})
	}
	return found
}
