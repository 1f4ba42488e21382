package node

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// What holds a pod's traffic while both networks work on it: a rule ahead of the main table, and a table of
// Theseus' own, on the host and in the pod. The table's number is far above those that networks take (Felix 1 to
// 250, Cilium 2004 and 2005), and so is the routes' protocol.
const (
	pinPref     = 90
	pinTable    = 90090
	pinProtocol = 190
)

// pinRule sends all traffic to the table first.
func pinRule() *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Table = netlink.FAMILY_V4, pinPref, pinTable
	return rule
}

// addRule adds the rule unless it is there: the kernel would add it twice.
func addRule(handle *netlink.Handle) error {
	there, err := hasRule(handle)
	if err != nil || there {
		return err
	}
	if err := ruleAdd(handle, pinRule()); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add a routing rule: %w", err)
	}
	return nil
}

func removeRule(handle *netlink.Handle) error {
	if err := handle.RuleDel(pinRule()); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove a routing rule: %w", err)
	}
	return forgetLocal(handle) // of a ruleAdd that was ended halfway
}

func hasRule(handle *netlink.Handle) (bool, error) {
	rules, err := listed(func() ([]netlink.Rule, error) { return handle.RuleList(netlink.FAMILY_V4) })
	if err != nil {
		return false, fmt.Errorf("list the routing rules: %w", err)
	}
	return slices.ContainsFunc(rules,
		func(r netlink.Rule) bool { return r.Priority == pinPref && r.Table == pinTable }), nil
}

// saveRoute makes a route data; false when it is of a kind that is not understood.
func saveRoute(route netlink.Route) (adoption.Route, bool) {
	saved := adoption.Route{
		To: "0.0.0.0/0", Link: route.LinkIndex, Scope: int(route.Scope), Protocol: int(route.Protocol),
		Metric: route.Priority, MTU: route.MTU, Flags: route.Flags & unix.RTNH_F_ONLINK,
	}
	if route.Dst != nil {
		saved.To = route.Dst.String()
	}
	if route.Gw != nil {
		saved.Via = route.Gw.String()
	}
	if route.Src != nil {
		saved.Source = route.Src.String()
	}
	plain := route.Type == unix.RTN_UNICAST && len(route.MultiPath) == 0 && route.Encap == nil &&
		route.Via == nil && route.Tos == 0
	return saved, plain
}

// loadRoute makes data a route of a table again.
func loadRoute(saved adoption.Route, table int) (*netlink.Route, error) {
	_, to, err := net.ParseCIDR(saved.To)
	if err != nil {
		return nil, fmt.Errorf("a saved route: %w", err)
	}
	route := &netlink.Route{
		Dst: to, Gw: net.ParseIP(saved.Via), Src: net.ParseIP(saved.Source), LinkIndex: saved.Link, Table: table,
		Scope: netlink.Scope(saved.Scope), Protocol: netlink.RouteProtocol(saved.Protocol), Priority: saved.Metric,
		MTU: saved.MTU, Flags: saved.Flags,
	}
	if table == pinTable {
		route.Protocol = pinProtocol
	}
	return route, nil
}

// onLinkFirst orders routes such that a gateway is reachable before a route names it.
func onLinkFirst(routes []adoption.Route) []adoption.Route {
	routes = slices.Clone(routes)
	slices.SortStableFunc(routes, func(a, b adoption.Route) int { return min(len(a.Via), 1) - min(len(b.Via), 1) })
	return routes
}

// hostNet is the pod's address as a destination.
func hostNet(address string) *net.IPNet {
	return &net.IPNet{IP: net.ParseIP(address).To4(), Mask: net.CIDRMask(32, 32)}
}

// hostRoute is how the host reaches an address; nil when it does not.
func hostRoute(address string) (*netlink.Route, error) {
	routes, err := netlink.RouteGet(net.ParseIP(address))
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EINVAL) ||
		err == nil && len(routes) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the route to %s: %w", address, err)
	}
	return &routes[0], nil
}

// pinnedThrough is the pod's route in the host's table, through one of its two interfaces.
func pinnedThrough(record *adoption.Record, through int) *netlink.Route {
	return &netlink.Route{
		Dst: hostNet(record.Address), LinkIndex: through, Scope: netlink.SCOPE_LINK, Table: pinTable,
		Protocol: pinProtocol, Src: net.ParseIP(record.HostSource),
	}
}

// unpinHost removes the pod's route from the host's table.
func unpinHost(address string) error {
	err := netlink.RouteDel(&netlink.Route{Dst: hostNet(address), Table: pinTable, Scope: netlink.SCOPE_LINK})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove the held route to %s: %w", address, err)
	}
	return nil
}

// pinnedRoutes lists the table of a namespace.
func pinnedRoutes(handle *netlink.Handle) ([]netlink.Route, error) {
	all, err := listed(func() ([]netlink.Route, error) {
		return handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: pinTable}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list the held routes: %w", err)
	}
	return all, nil
}
