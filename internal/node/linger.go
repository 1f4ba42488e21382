package node

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// lingerLabel marks addresses that outlive their interface.
const lingerLabel = "lo:theseus"

// linger gives the loopback interface the addresses of interfaces that are about to go, as far as connections still
// have them, and says which. Their scope keeps new connections from choosing them. The caller makes sure that no pod
// gets them; they stay until they are removed, or the node restarts.
func linger(patterns []string) ([]string, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	links, err := linksOf(patterns)
	if err != nil {
		return nil, err
	}
	addresses, err := listed(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", err)
	}
	all, err := connections()
	if err != nil {
		return nil, err
	}
	used := map[netip.Addr]bool{}
	for _, c := range all {
		for _, end := range []netip.AddrPort{c.original.from, c.original.to, c.reply.from, c.reply.to} {
			used[end.Addr()] = used[end.Addr()] || !c.over()
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find the loopback interface: %w", err)
	}
	var kept []string
	for _, address := range addresses {
		own, ok := netip.AddrFromSlice(address.IP.To4())
		if !ok || !links[address.LinkIndex] || !used[own] {
			continue
		}
		stays := &netlink.Addr{IPNet: netlink.NewIPNet(address.IP), Label: lingerLabel, Scope: unix.RT_SCOPE_LINK}
		if err := netlink.AddrReplace(lo, stays); err != nil {
			return kept, fmt.Errorf("keep the address %s: %w", own, err)
		}
		kept = append(kept, own.String())
	}
	return kept, nil
}

// lingering says so.
func lingering(kept []string) string {
	if len(kept) == 0 {
		return ""
	}
	return "; connections still have " + strings.Join(kept, " and ") + ", which stay on the loopback interface"
}
