package cni

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// AddressesOf counts the addresses of networks, those with the greatest share in use first. Ranges of IPv6 of which
// nothing can be used up are left out.
func AddressesOf(snapshot *cluster.Snapshot, found []*Installation) []cluster.Addresses {
	var all []cluster.Addresses
	for _, network := range found {
		add := func(text, node string, pods []netip.Addr) {
			prefix, err := netip.ParsePrefix(text)
			bits := prefix.Addr().BitLen() - prefix.Bits()
			if err != nil || bits > 31 {
				return
			}
			a := cluster.Addresses{Network: cmp.Or(network.As, network.CNI), Range: prefix.Masked().String(),
				Node: node, Usable: int64(math.Exp2(float64(bits)))}
			if node != "" {
				a.Usable = max(0, a.Usable-int64(network.Capabilities.KeptFirst)-int64(network.Capabilities.KeptLast))
			}
			if a.Used, a.Records = network.Used[a.Range]; !a.Records {
				for _, address := range pods {
					if prefix.Contains(address) {
						a.Used++
					}
				}
			}
			all = append(all, a)
		}
		if network.Capabilities.CIDRSource != "node" {
			pods := podAddresses(snapshot, "")
			for _, text := range network.PodCIDRs {
				add(text, "", pods)
			}
			continue
		}
		for i := range snapshot.Nodes {
			node := &snapshot.Nodes[i]
			pods := podAddresses(snapshot, node.Name)
			for _, text := range RangesOf(node) {
				add(text, node.Name, pods)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b cluster.Addresses) int {
		return cmp.Compare(float64(b.Used)/float64(max(1, b.Usable)), float64(a.Used)/float64(max(1, a.Usable)))
	})
	return all
}

// podAddresses are those that pods have, on one node or on all.
func podAddresses(snapshot *cluster.Snapshot, node string) (all []netip.Addr) {
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.Spec.HostNetwork || ended || node != "" && pod.Spec.NodeName != node {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			if address, err := netip.ParseAddr(ip.IP); err == nil {
				all = append(all, address)
			}
		}
	}
	return all
}
