package node

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ruleAdd adds a routing rule such that nothing is lost where it is the first of its network namespace.
//
// Until then Linux' table local is one with main. The first rule parts them, and there is a moment in which the
// local routes have left main and main alone is still asked (fib_unmerge, fib_has_custom_rules in
// net/ipv4/fib_rules.c): what comes for the namespace's own addresses is dropped or sent on. So main gets those
// routes as its own meanwhile. BenchmarkFirstRule measures a namespace with and without.
func ruleAdd(handle *netlink.Handle, rule *netlink.Rule) error {
	local, err := localRoutes(handle, unix.RT_TABLE_LOCAL)
	if err != nil {
		return err
	}
	for _, route := range local {
		route.Table, route.Protocol = unix.RT_TABLE_MAIN, pinProtocol
		if err := handle.RouteAdd(&route); err != nil && !errors.Is(err, unix.EEXIST) {
			return errors.Join(fmt.Errorf("keep the local route to %s: %w", route.Dst, err), forgetLocal(handle))
		}
	}
	err = handle.RuleAdd(rule)
	return errors.Join(err, forgetLocal(handle))
}

// forgetLocal removes what ruleAdd put into main.
func forgetLocal(handle *netlink.Handle) error {
	kept, err := localRoutes(handle, unix.RT_TABLE_MAIN)
	if err != nil {
		return err
	}
	for _, route := range kept {
		if route.Protocol != pinProtocol {
			continue
		}
		if err := handle.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove a local route from main: %w", err)
		}
	}
	return nil
}

// localRoutes are the routes of a table that lead to the namespace itself.
func localRoutes(handle *netlink.Handle, table int) ([]netlink.Route, error) {
	all, err := listed(func() ([]netlink.Route, error) {
		return handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: table, Type: unix.RTN_LOCAL},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	if err != nil {
		return nil, fmt.Errorf("list the local routes: %w", err)
	}
	return all, nil
}
