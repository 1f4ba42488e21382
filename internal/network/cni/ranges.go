package cni

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// NodeRanges returns the nodes' own ranges of pod addresses (spec.podCIDRs), merged to as few as possible.
func NodeRanges(snapshot *cluster.Snapshot) []string {
	var all []string
	for i := range snapshot.Nodes {
		all = append(all, RangesOf(&snapshot.Nodes[i])...)
	}
	return mergeRanges(all)
}

// RangesOf returns the ranges of one node.
func RangesOf(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return []string{node.Spec.PodCIDR}
	}
	return node.Spec.PodCIDRs
}

// mergeRanges merges ranges that are the two halves of a larger one, so that few remain. The result contains exactly
// the same addresses.
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
			continue // within the previous, larger one
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

// PodRange parses the range for the pods of a network, or returns a *Refusal: it is not an IPv4 CIDR, it has host bits
// set, or its addresses cannot be used for hosts.
func PodRange(network, text string) (netip.Prefix, error) {
	refuse := func(why, hint string) error {
		return &Refusal{Message: "the range for " + network + "'s pods, " + why, Hint: hint}
	}
	const hint = "set --pod-cidr to a free range, such as 10.200.0.0/16"
	prefix, err := netip.ParsePrefix(text)
	if err != nil || !prefix.Addr().Is4() {
		return prefix, refuse(strconv.Quote(text)+", is not an IPv4 CIDR", hint)
	}
	if prefix != prefix.Masked() {
		return prefix, refuse(text+", has host bits set: its network is "+prefix.Masked().String(),
			"set --pod-cidr "+prefix.Masked().String()+" if that is meant")
	}
	if why := Unusable(prefix); why != "" {
		return prefix, refuse(text+", "+why, hint)
	}
	return prefix, nil
}

// Unusable says why addresses of an IPv4 range cannot be used for hosts; empty if they can.
func Unusable(prefix netip.Prefix) string {
	for _, special := range []struct{ prefix, what string }{
		{"0.0.0.0/8", "that mean \"this network\""},
		{"127.0.0.0/8", "of loopback"},
		{"169.254.0.0/16", "that are link-local"},
		{"224.0.0.0/3", "that are multicast or reserved"},
	} {
		if prefix.Overlaps(netip.MustParsePrefix(special.prefix)) {
			return fmt.Sprintf("holds addresses %s (%s)", special.what, special.prefix)
		}
	}
	return ""
}
