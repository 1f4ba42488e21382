package policy

import (
	"net/netip"
	"slices"
)

// atlas numbers the ranges into which all addresses that policies and profiles name cut the address space.
// Addresses of one range are the same to every policy, so sets of addresses are sets of these numbers.
type atlas struct {
	// starts are the first addresses of the ranges, in order.
	starts []netip.Addr
	// made are the sets handed out by shared.
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

// at is the number of the range that an address is in.
func (a *atlas) at(address netip.Addr) uint32 {
	i, exact := slices.BinarySearchFunc(a.starts, address, netip.Addr.Compare)
	if !exact {
		i--
	}
	return uint32(i)
}

// shared is the set of these ranges, in order; equal sets that are one range long are one.
func (a *atlas) shared(ranges ...span) spans {
	if len(ranges) != 1 {
		return ranges
	}
	if _, ok := a.made[ranges[0]]; !ok {
		a.made[ranges[0]] = ranges
	}
	return a.made[ranges[0]]
}

// set is the ranges that prefixes hold. A prefix that is not in the atlas is rounded up.
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

// parsePrefix reads a range or a single address; the bits behind the mask do not matter.
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
