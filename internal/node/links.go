package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// Limits of waiting for the kernel.
const (
	portsWait = 10 * time.Second // for pods that are being torn down to leave a bridge
	poll      = 100 * time.Millisecond
	dumpTries = 5 // the kernel interrupts a listing when something changes meanwhile
)

// listed repeats a listing that was interrupted by a change.
func listed[T any](list func() ([]T, error)) ([]T, error) {
	for try := 1; ; try++ {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || try == dumpTries {
			return all, err
		}
	}
}

// links lists the interfaces with their addresses.
func links() ([]cluster.Link, error) {
	found, err := listed(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	addresses, err := listed(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", err)
	}
	var all []cluster.Link
	for _, link := range found {
		attrs := link.Attrs()
		described := cluster.Link{Name: attrs.Name, Type: link.Type(), MTU: attrs.MTU}
		if vxlan, is := link.(*netlink.Vxlan); is {
			described.VNI, described.Port = vxlan.VxlanId, vxlan.Port
		}
		for _, address := range addresses {
			if address.LinkIndex == attrs.Index {
				described.Addresses = append(described.Addresses, address.IPNet.String())
			}
		}
		all = append(all, described)
	}
	return all, nil
}

// linkOf finds an interface; nil when there is none of that name.
func linkOf(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the interface %s: %w", name, err)
	}
	return link, nil
}

// removeLink removes an interface; one that is not there is removed already.
func removeLink(name string) error {
	link, err := linkOf(name)
	if err != nil || link == nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the interface %s: %w", name, err)
	}
	return nil
}

// waitUnused waits until a bridge has no ports but its network's own. Any other is a pod's, and a pod that was
// deleted a moment ago may still be on its way out; one that stays is in use.
func waitUnused(ctx context.Context, name string, own []string, patience time.Duration) error {
	link, err := linkOf(name)
	if err != nil || link == nil || link.Type() != "bridge" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ports, err := portsOf(link)
		ports = slices.DeleteFunc(ports, func(port string) bool { return slices.Contains(own, port) })
		if err != nil || len(ports) == 0 {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the bridge %s still has the port %s: pods are attached to "+
				"it", name, strings.Join(ports, ", "))
		}
		_ = outage.Sleep(ctx, poll)
	}
}

func portsOf(bridge netlink.Link) ([]string, error) {
	all, err := listed(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	var ports []string
	for _, link := range all {
		if link.Attrs().MasterIndex == bridge.Attrs().Index {
			ports = append(ports, link.Attrs().Name)
		}
	}
	return ports, nil
}

// routes lists the routes of all tables that lead somewhere or nowhere. Local and broadcast routes are left
// out: they belong to addresses and go with them.
func routes() ([]netlink.Route, error) {
	all, err := listed(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list the routes: %w", err)
	}
	var kept []netlink.Route
	for _, route := range all {
		switch route.Type {
		case unix.RTN_UNICAST, unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
			if route.Table != unix.RT_TABLE_LOCAL {
				kept = append(kept, route)
			}
		}
	}
	return kept, nil
}

// routesByProtocol counts the unicast routes by the name of the protocol that made them.
func routesByProtocol() (map[string]int, error) {
	all, err := routes()
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, route := range all {
		if route.Type == unix.RTN_UNICAST {
			count[route.Protocol.String()]++
		}
	}
	return count, nil
}

// destination is where a route leads; false for a default route.
func destination(route netlink.Route) (netip.Prefix, bool) {
	if route.Dst == nil {
		return netip.Prefix{}, false
	}
	address, ok := netip.AddrFromSlice(route.Dst.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	bits, size := route.Dst.Mask.Size()
	if size == 32 {
		address = address.Unmap()
	}
	return netip.PrefixFrom(address, bits), bits > 0
}

// removeRoutes removes every route that lies within the ranges.
func removeRoutes(within []netip.Prefix) error {
	all, err := routes()
	if err != nil {
		return err
	}
	var errs []error
	for _, route := range all {
		to, ok := destination(route)
		if !ok || !inside(within, to) {
			continue
		}
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove the route to %s: %w", to, err))
		}
	}
	return errors.Join(errs...)
}
