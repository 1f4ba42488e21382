package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

func (n *Node) pin(ctx context.Context, args step.PinArgs) (Answer, error) {
	return n.rerouted(ctx, args.Within, func() (Answer, error) { return pin(args) })
}

// pin sends packets to other nodes straight there, by the table and the rules of a held route.
func pin(args step.PinArgs) (Answer, error) {
	own, err := ownRoutes(args)
	if err != nil {
		return Answer{}, err
	}
	var wanted []netlink.Route
	for _, route := range own.remote {
		straight, err := own.straight(route, args.Far)
		if err != nil {
			return Answer{}, err
		}
		if straight != nil {
			wanted = append(wanted, *straight)
		}
	}
	// A pod of this node may have an address of another node's block.
	for _, route := range own.local {
		to, _ := destination(route)
		if slices.ContainsFunc(wanted,
			func(r netlink.Route) bool { block, _ := destination(r); return inside([]netip.Prefix{block}, to) }) {
			wanted = append(wanted,
				netlink.Route{Dst: route.Dst, Type: unix.RTN_THROW, Table: heldTable, Protocol: pinProtocol})
		}
	}
	for _, route := range wanted {
		if err := netlink.RouteReplace(&route); err != nil {
			return Answer{}, fmt.Errorf("pin the route %s: %w", route.Dst, err)
		}
	}
	changed, err := addRules(args.Within, heldRule)
	if err != nil {
		return Answer{}, err
	}
	var kept []string
	if args.Linger {
		if kept, err = linger(args.Tunnel); err != nil {
			return Answer{}, err
		}
	}
	return Answer{Changed: changed || len(kept) > 0, Message: fmt.Sprintf("%d routes to other nodes are pinned%s",
		len(wanted), lingering(kept))}, nil
}

// routed waits until all has a route of the network's own by a way.
func (n *Node) routed(ctx context.Context, args step.PinArgs) (Answer, error) {
	return allThere(ctx, func() (int, string, error) { return astray(args) }, "%d routes to other nodes are there")
}

func (n *Node) follow(ctx context.Context, args step.PinArgs) (Answer, error) {
	if got, err := n.routed(ctx, args); err != nil {
		return got, err
	}
	return n.rerouted(ctx, args.Within, func() (Answer, error) { return follow(args) })
}

// follow lets what is pinned go by the network's own routes.
func follow(args step.PinArgs) (Answer, error) {
	if _, missing, err := astray(args); err != nil || missing != "" {
		return Answer{}, cmp.Or(err, errors.New(missing))
	}
	own, err := ownRoutes(args)
	if err != nil {
		return Answer{}, err
	}
	pinned, err := pinnedTable()
	if err != nil {
		return Answer{}, err
	}
	changed := 0
	for _, route := range own.remote {
		at := slices.IndexFunc(pinned, func(r netlink.Route) bool {
			return r.Dst != nil && r.Dst.String() == route.Dst.String()
		})
		if at < 0 || pinned[at].LinkIndex == route.LinkIndex && pinned[at].Gw.Equal(route.Gw) {
			continue
		}
		if node, ok := own.end(route); ok && own.tunnel[route.LinkIndex] {
			way, err := hostRoute(node.String())
			if err != nil {
				return Answer{}, err
			}
			if way != nil {
				route.Src = way.Src
			}
		}
		route.Table, route.Priority, route.Protocol = heldTable, 0, pinProtocol
		if err := netlink.RouteReplace(&route); err != nil {
			return Answer{}, fmt.Errorf("let what is pinned to %s go by the network's own route: %w", route.Dst, err)
		}
		changed++
	}
	return Answer{Changed: changed > 0,
		Message: fmt.Sprintf("packets to other nodes go by the network's own routes, %d of them new", changed)}, nil
}

func (n *Node) unpin(ctx context.Context, args step.PinArgs) (Answer, error) {
	if got, err := n.routed(ctx, args); err != nil {
		return got, err
	}
	return n.rerouted(ctx, args.Within, func() (Answer, error) { return unpin(args) })
}

// unpin leaves packets to the network's own routes again.
func unpin(args step.PinArgs) (Answer, error) {
	return released(args.Within, func() (int, string, error) { return astray(args) },
		"packets to other nodes take the network's own routes")
}

// astray counts the network's own routes to other nodes, and names what has none by the way that is asked for.
func astray(args step.PinArgs) (count int, missing string, err error) {
	own, err := ownRoutes(args)
	if err != nil {
		return 0, "", err
	}
	pinned, err := pinnedTable()
	if err != nil {
		return 0, "", err
	}
	left := map[netip.Prefix]netlink.Route{} // pinned, and not seen yet
	for _, route := range pinned {
		if to, ok := destination(route); ok && route.Type == unix.RTN_UNICAST {
			left[to] = route
		}
	}
	for _, route := range own.remote {
		to, _ := destination(route)
		_, held := left[to]
		if why := own.wrong(route, args, held); why != "" {
			return 0, fmt.Sprintf("the route to %s %s", to, why), nil
		}
		delete(left, to)
	}
	for to, route := range left {
		if !own.covers(to, route.Gw) {
			return 0, fmt.Sprintf("the network has no route to %s", to), nil
		}
	}
	return len(own.remote), "", nil
}

// covers says whether a larger range is routed to the same node: a network may have routes of their own to single
// addresses of a block, such as those of the tunnels' ends, by one way and not by another.
func (o *own) covers(to netip.Prefix, gateway net.IP) bool {
	var best *netlink.Route
	bits := -1
	for i, route := range o.remote {
		if block, _ := destination(route); inside([]netip.Prefix{block}, to) && block.Bits() > bits {
			best, bits = &o.remote[i], block.Bits()
		}
	}
	if best == nil {
		return false
	}
	straight, err := o.straight(*best, step.FarRoute)
	return err == nil && straight.Gw.Equal(gateway)
}

// own are the network's routes in the main table.
type own struct {
	// remote lead to other nodes, one for each destination; local are pods of this one.
	remote, local []netlink.Route
	// tunnel are the interfaces of the tunnel, and ends the node behind each of their neighbours.
	tunnel map[int]bool
	ends   map[netip.Addr]netip.Addr
}

func ownRoutes(args step.PinArgs) (*own, error) {
	within, err := prefixes(args.Within)
	if err != nil {
		return nil, err
	}
	tunnel, err := linksOf(args.Tunnel)
	if err != nil {
		return nil, err
	}
	found, err := mainRoutes(func(r netlink.Route, to netip.Prefix) bool {
		return r.Type == unix.RTN_UNICAST && inside(within, to)
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	o := &own{tunnel: tunnel, ends: map[netip.Addr]netip.Addr{}}
	seen := map[netip.Prefix]bool{}
	for _, route := range found {
		to, _ := destination(route)
		switch {
		case seen[to]:
		case leadsOn(route):
			o.remote = append(o.remote, route)
		case to.IsSingleIP() && !tunnel[route.LinkIndex]:
			o.local = append(o.local, route)
		}
		seen[to] = true
	}
	for link := range tunnel {
		if err := o.findEnds(link); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// findEnds goes by what the owner of a tunnel has written: the hardware address of each neighbour, and the node to
// which the tunnel carries what has that address.
func (o *own) findEnds(link int) error {
	neighbours, err := listed(func() ([]netlink.Neigh, error) { return netlink.NeighList(link, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("list the tunnel's neighbours: %w", err)
	}
	forwarding, err := listed(func() ([]netlink.Neigh, error) { return netlink.NeighList(link, unix.AF_BRIDGE) })
	if err != nil {
		return fmt.Errorf("list where the tunnel leads: %w", err)
	}
	nodes := map[string]netip.Addr{}
	for _, entry := range forwarding {
		if node, ok := netip.AddrFromSlice(entry.IP.To4()); ok {
			nodes[entry.HardwareAddr.String()] = node
		}
	}
	for _, entry := range neighbours {
		at, ok := netip.AddrFromSlice(entry.IP.To4())
		if node := nodes[entry.HardwareAddr.String()]; ok && node.IsValid() {
			o.ends[at] = node
		}
	}
	return nil
}

// straight is a route in the table of pins that leads where another one does and through no tunnel; nil where it is
// left to the network.
func (o *own) straight(route netlink.Route, far step.Far) (*netlink.Route, error) {
	if !o.tunnel[route.LinkIndex] {
		route.Table, route.Priority, route.Protocol = heldTable, 0, pinProtocol
		return &route, nil
	}
	node, ok := o.end(route)
	if !ok {
		return nil, fmt.Errorf("which node the tunnel carries packets to %s to is not known", route.Dst)
	}
	way, err := hostRoute(node.String())
	switch {
	case err != nil:
		return nil, err
	case way == nil:
		return nil, fmt.Errorf("there is no route to the node %s", node)
	case way.Gw != nil && far == step.FarLeave:
		return nil, nil
	case way.Gw != nil && far != step.FarRoute:
		return nil, fmt.Errorf("the node %s, which has %s, is behind the router %s and on no link of this node",
			node, route.Dst, way.Gw)
	}
	gateway := way.Gw
	if gateway == nil {
		gateway = net.IP(node.AsSlice())
	}
	return &netlink.Route{Dst: route.Dst, Gw: gateway, LinkIndex: way.LinkIndex, Flags: int(netlink.FLAG_ONLINK),
		Table: heldTable, Protocol: pinProtocol}, nil
}

func (o *own) end(route netlink.Route) (netip.Addr, bool) {
	via, _ := netip.AddrFromSlice(route.Gw.To4())
	node, ok := o.ends[via]
	return node, ok
}

// wrong says why a route is not of a way; empty where it is. Pinned is whether its destination is.
func (o *own) wrong(route netlink.Route, args step.PinArgs, pinned bool) string {
	bird, tunnel := route.Protocol == unix.RTPROT_BIRD, o.tunnel[route.LinkIndex]
	if tunnel {
		if _, ok := o.end(route); !ok {
			return "leads into the tunnel, which does not know its end"
		}
	}
	switch args.Way {
	case step.WayBGP:
		if !bird || tunnel {
			return "is not BIRD's"
		}
	case step.WayTunnel:
		if !tunnel {
			return "does not lead through the tunnel"
		}
	case step.WayCross:
		if bird {
			return "is still BIRD's"
		}
		if tunnel && pinned && args.Far == step.FarLeave {
			return "still leads through the tunnel"
		}
	default:
		return fmt.Sprintf("cannot be held against the way %q", args.Way)
	}
	return ""
}
