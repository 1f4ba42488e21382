package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// atlas numbers the ranges into which the address ranges of all policies and profiles divide the address space.
// Every policy treats all addresses of one range alike, so a set of addresses is a set of these numbers.
type atlas struct {
	// starts are the first addresses of the ranges, in order.
	starts []netip.Addr
	// made are the sets returned by shared.
	made map[span]spans
}

func newAtlas(prefixes []netip.Prefix) *atlas {
	starts := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	for _, prefix := range prefixes {
		starts = append(starts, prefix.Addr())
		if next := lastOf(prefix).Next(); next.IsValid() {
			starts = append(starts, next)
		}
	}
	slices.SortFunc(starts, netip.Addr.Compare)
	return &atlas{slices.Compact(starts), map[span]spans{}}
}

// at returns the number of the range that contains an address.
func (a *atlas) at(address netip.Addr) uint32 {
	i, exact := slices.BinarySearchFunc(a.starts, address, netip.Addr.Compare)
	if !exact {
		i--
	}
	return uint32(i)
}

// shared returns the set of these ranges, in order; equal sets of one range share memory.
func (a *atlas) shared(ranges ...span) spans {
	if len(ranges) != 1 {
		return ranges
	}
	if _, ok := a.made[ranges[0]]; !ok {
		a.made[ranges[0]] = ranges
	}
	return a.made[ranges[0]]
}

// set returns the ranges that prefixes contain. A prefix that is not in the atlas is rounded up.
func (a *atlas) set(prefixes []netip.Prefix) spans {
	var ranges []span
	for _, prefix := range prefixes {
		ranges = append(ranges, span{a.at(prefix.Addr()), a.at(lastOf(prefix))})
	}
	return makeSpans(ranges...)
}

func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// parsePrefix parses a range or a single address; it ignores the host bits.
func parsePrefix(text string) (netip.Prefix, bool) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Masked(), true
	}
	address, ok := parseAddress(text)
	if !ok {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(address, address.BitLen()), true
}

func parseAddress(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(text)
	return address.Unmap().WithZone(""), err == nil
}

// addressesOfPod are the addresses of a pod, and those of its node as the pod has them.
func addressesOfPod(status *corev1.PodStatus) (own, host addresses) {
	add := func(to *addresses, text string) {
		if a, ok := parseAddress(text); ok {
			*to = to.union(addressesOf(netip.PrefixFrom(a, a.BitLen())))
		}
	}
	add(&own, status.PodIP)
	for _, ip := range status.PodIPs {
		add(&own, ip.IP)
	}
	add(&host, status.HostIP)
	for _, ip := range status.HostIPs {
		add(&host, ip.IP)
	}
	return own, host
}

// addressesOfNode are the addresses that networks know of a node. Its names are no addresses.
func addressesOfNode(node *corev1.Node) (all addresses) {
	for _, one := range node.Status.Addresses {
		if one.Type != corev1.NodeInternalIP && one.Type != corev1.NodeExternalIP {
			continue
		}
		if a, ok := parseAddress(one.Address); ok {
			all = all.union(addressesOf(netip.PrefixFrom(a, a.BitLen())))
		}
	}
	return all
}
