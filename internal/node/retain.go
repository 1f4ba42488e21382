package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/step"
)

// Retained routes are in a table of their own, which BIRD neither reads nor writes. Of the two rules for each range the
// first asks the main table, for routes that are longer than the range's own and so not for the default route, and the
// second what is retained.
const (
	retainedTable = 252
	retainedPref  = 92
)

// retain copies BIRD's routes, and only then lets them serve.
func (n *Node) retain(_ context.Context, args step.RetainArgs) (Answer, error) {
	within, err := prefixes(args.Within)
	if err != nil {
		return Answer{}, err
	}
	routes, err := birdRoutes(within)
	if err != nil {
		return Answer{}, err
	}
	for _, route := range routes {
		route.Table, route.Protocol = retainedTable, pinProtocol
		if err := netlink.RouteReplace(&route); err != nil {
			return Answer{}, fmt.Errorf("retain the route %s: %w", route.Dst, err)
		}
	}
	changed := false
	for _, rule := range retainedRules(within) {
		err := ruleAdd(&netlink.Handle{}, rule)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return Answer{}, fmt.Errorf("let retained routes serve: %w", err)
		}
		changed = changed || err == nil
	}
	return Answer{Changed: changed, Message: fmt.Sprintf("%d routes of BIRD's are retained", len(routes))}, nil
}

// letGo waits until BIRD has all that is retained, and removes it, the rules first. What BIRD has not made again after
// that time with all of its sessions up leads to a block of addresses that has gone, and goes too.
func (n *Node) letGo(ctx context.Context, args step.RetainArgs) (Answer, error) {
	within, err := prefixes(args.Within)
	if err != nil {
		return Answer{}, err
	}
	err = until(ctx, cmp.Or(n.patience, carriedWait), func() (string, error) { return unmade(within) })
	if err != nil && (ctx.Err() != nil || !bgp.Whole(n.bird(ctx))) {
		return Answer{}, err
	}
	gone := ""
	if err != nil {
		gone = "all sessions are up, and so it goes: " + err.Error()
	}
	changed := false
	for _, rule := range retainedRules(within) {
		err := netlink.RuleDel(rule)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return Answer{}, fmt.Errorf("leave routes to BIRD again: %w", err)
		}
		changed = changed || err == nil
	}
	kept, err := retained()
	if err != nil {
		return Answer{}, err
	}
	for _, route := range kept {
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return Answer{}, fmt.Errorf("remove the retained route %s: %w", route.Dst, err)
		}
	}
	return Answer{Changed: changed, Message: cmp.Or(gone, fmt.Sprintf("BIRD has all %d routes itself", len(kept)))}, nil
}

// unmade names a route that is retained and that BIRD has not.
func unmade(within []netip.Prefix) (string, error) {
	kept, err := retained()
	if err != nil {
		return "", err
	}
	own, err := birdRoutes(within)
	if err != nil {
		return "", err
	}
	has := map[netip.Prefix]bool{}
	for _, route := range own {
		to, _ := destination(route)
		has[to] = true
	}
	for _, route := range kept {
		if to, _ := destination(route); !has[to] {
			return fmt.Sprintf("BIRD has no route to %s again", to), nil
		}
	}
	return "", nil
}

// birdRoutes are those of the main table that BIRD made and that lead to other nodes.
func birdRoutes(within []netip.Prefix) ([]netlink.Route, error) {
	return mainRoutes(func(r netlink.Route, to netip.Prefix) bool {
		return r.Protocol == unix.RTPROT_BIRD && r.Type == unix.RTN_UNICAST && leadsOn(r) && inside(within, to)
	})
}

func retained() ([]netlink.Route, error) {
	all, err := routes()
	if err != nil {
		return nil, err
	}
	var kept []netlink.Route
	for _, route := range all {
		if route.Table == retainedTable {
			kept = append(kept, route)
		}
	}
	return kept, nil
}

func retainedRules(within []netip.Prefix) []*netlink.Rule {
	var rules []*netlink.Rule
	for i, table := range []int{unix.RT_TABLE_MAIN, retainedTable} {
		for _, prefix := range within {
			rule := netlink.NewRule()
			rule.Family, rule.Priority, rule.Table = netlink.FAMILY_V4, retainedPref+i, table
			rule.Dst = &net.IPNet{IP: prefix.Addr().AsSlice(),
				Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
			if table == unix.RT_TABLE_MAIN {
				rule.SuppressPrefixlen = prefix.Bits() - 1 // one of the range's own length may be the block of a node
			}
			rules = append(rules, rule)
		}
	}
	return rules
}
