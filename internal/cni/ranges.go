package cni

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// NodeRanges are the nodes' own ranges of pods' addresses (spec.podCIDRs), as few as can be.
func NodeRanges(snapshot *cluster.Snapshot) []string {
	var all []string
	for i := range snapshot.Nodes {
		all = append(all, RangesOf(&snapshot.Nodes[i])...)
	}
	return mergeRanges(all)
}

// RangesOf are those of one node.
func RangesOf(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return []string{node.Spec.PodCIDR}
	}
	return node.Spec.PodCIDRs
}

// mergeRanges joins ranges that are halves of one, so that few remain of many nodes; nothing is in the result that was in
// none of them.
func mergeRanges(cidrs []string) []string {
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
