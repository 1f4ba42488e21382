package node

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

// leadsOn says of a route whether it leads to another machine, and not to a bridge of this one.
func leadsOn(route netlink.Route) bool { return route.Gw != nil || len(route.MultiPath) > 0 }

func pinRoute(route netlink.Route) error {
	route.Table, route.Priority = heldTable, 0
	if err := netlink.RouteReplace(&route); err != nil {
		return fmt.Errorf("pin the route %s: %w", route.Dst, err)
	}
	return nil
}

// pinBlocks pins what has no route of its own: to other nodes' ranges, by the routes that lead there, such as the
// default route to a router that knows the way.
func pinBlocks(args step.HoldArgs) error {
	if args.Bits == 0 {
		return nil
	}
	within, err := prefixes(args.Within)
	if err != nil {
		return err
	}
	pinned, err := pinnedTable()
	if err != nil {
		return err
	}
	seen := map[netip.Prefix]bool{}
	for _, route := range pinned {
		to, _ := destination(route)
		seen[to] = true
	}
	ways, err := waysBut(args.Target)
	if err != nil {
		return err
	}
	for _, block := range blocksOf(within, args.Bits) {
		if seen[block] || ways.holds(block) {
			continue
		}
		route := ways.to(block)
		if route == nil {
			return fmt.Errorf("no route leads to %s, the range of another node", block)
		}
		if err := pinRoute(*route); err != nil {
			return err
		}
	}
	return nil
}

// blocksOf are the parts of ranges whose prefixes have a length.
func blocksOf(within []netip.Prefix, bits int) []netip.Prefix {
	var all []netip.Prefix
	for _, whole := range within {
		for block := netip.PrefixFrom(whole.Addr(), bits); whole.Bits() <= bits && whole.Contains(block.Addr()); {
			all = append(all, block)
			last := block.Addr().As4()
			next := binary.BigEndian.Uint32(last[:]) + 1<<(32-bits)
			if next == 0 {
				break // behind the last address that there is
			}
			binary.BigEndian.PutUint32(last[:], next)
			block = netip.PrefixFrom(netip.AddrFrom4(last), bits)
		}
	}
	return all
}

// ways are the main table, and the node's own addresses, without some interfaces.
type ways struct {
	routes    []netlink.Route
	addresses []netip.Addr
}

func waysBut(patterns []string) (*ways, error) {
	but, err := linksOf(patterns)
	if err != nil {
		return nil, err
	}
	all, err := listed(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list the routes: %w", err)
	}
	own, err := listed(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", err)
	}
	w := &ways{}
	for _, route := range all {
		if route.Type == unix.RTN_UNICAST && !but[route.LinkIndex] {
			route.Flags &= int(netlink.FLAG_ONLINK)
			w.routes = append(w.routes, route)
		}
	}
	for _, address := range own {
		if at, ok := netip.AddrFromSlice(address.IP.To4()); ok && !but[address.LinkIndex] {
			w.addresses = append(w.addresses, at)
		}
	}
	return w, nil
}

// holds says whether a block is the node's own.
func (w *ways) holds(block netip.Prefix) bool {
	return slices.ContainsFunc(w.addresses, block.Contains)
}

// to is a route to a block by the most specific route that leads there; nil where there is none.
func (w *ways) to(block netip.Prefix) *netlink.Route {
	var best *netlink.Route
	length := -1
	for i, route := range w.routes {
		to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if narrow, ok := destination(route); ok {
			to = narrow
		}
		if inside([]netip.Prefix{to}, block) &&
			(to.Bits() > length || to.Bits() == length && route.Priority < best.Priority) {
			best, length = &w.routes[i], to.Bits()
		}
	}
	if best == nil {
		return nil
	}
	route := *best
	route.Dst = &net.IPNet{IP: block.Addr().AsSlice(), Mask: net.CIDRMask(block.Bits(), block.Addr().BitLen())}
	return &route
}
