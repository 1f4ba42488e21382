package bridge

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func podCIDRs(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return []string{node.Spec.PodCIDR}
	}
	return node.Spec.PodCIDRs
}

func list(cidrs []string) string {
	if len(cidrs) == 0 {
		return "nothing"
	}
	return strings.Join(cidrs, ", ")
}

// merged joins ranges that are halves of one, so that few remain of many nodes; nothing is in the result that was in
// none of them.
func merged(cidrs []string) []string {
	var all []netip.Prefix
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, prefix := range all {
		if n := len(kept); n > 0 && kept[n-1].Overlaps(prefix) {
			continue // in the one before, which is the larger
		}
		kept = append(kept, prefix)
		for n := len(kept); n > 1; n = len(kept) {
			whole := netip.PrefixFrom(kept[n-2].Addr(), kept[n-2].Bits()-1).Masked()
			if kept[n-2].Bits() != kept[n-1].Bits() || kept[n-2].Bits() == 0 || !whole.Contains(kept[n-1].Addr()) {
				break
			}
			kept = append(kept[:n-2], whole)
		}
	}
	var texts []string
	for _, prefix := range kept {
		texts = append(texts, prefix.String())
	}
	return texts
}

// smallestMTU is that of the pods on any node: of the bridge, or what the configuration says; 0 where neither tells.
func smallestMTU(nodes []served) int {
	smallest := 0
	note := func(mtu int) {
		if mtu > 0 && (smallest == 0 || mtu < smallest) {
			smallest = mtu
		}
	}
	for _, n := range nodes {
		note(n.conf.MTU)
		for _, link := range n.Links {
			if link.Name == linkOf(n.conf) {
				note(link.MTU)
			}
		}
	}
	return smallest
}
