package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step"
)

// carriedWait bounds how long the target's routes are waited for, and the end of them.
const carriedWait = 2 * time.Minute

// A pin is one rule that sends packets to the range through a table of the source's routes to other nodes. Other
// packets, such as those to the node's own pods, use the main table.
const (
	heldTable = 251
	heldPref  = 91
)

func (n *Node) hold(ctx context.Context, args step.HoldArgs) (Answer, error) {
	return n.rerouted(ctx, args.Within, func() (Answer, error) { return hold(args) })
}

// hold pins first, then moves the source's routes behind any other.
func hold(args step.HoldArgs) (Answer, error) {
	pinned, err := pinRoutes(args)
	if err != nil {
		return Answer{}, err
	}
	if args.Others > 0 { // the target's routes are to less than the whole range, and never in the way of this one
		return Answer{Changed: pinned, Message: "packets to other nodes go to neighbours, as before"}, nil
	}
	got, err := shift(args, 0, step.HeldMetric)
	got.Changed = got.Changed || pinned
	return got, err
}

// pinRoutes says whether it changed anything.
func pinRoutes(args step.HoldArgs) (bool, error) {
	changed := false
	for _, metric := range []int{0, step.HeldMetric} {
		routes, err := heldRoutes(args, metric)
		if err != nil {
			return changed, err
		}
		for _, route := range routes {
			if !leadsOn(route) && args.Others == 0 {
				continue // the bridge of this node
			}
			if err := pinRoute(route); err != nil {
				return changed, err
			}
		}
	}
	if err := pinBlocks(args); err != nil {
		return changed, err
	}
	rules := []ruleFor{heldRule}
	if args.Others > 0 { // this node's own pods are not behind its bridge, those that come up meanwhile neither
		rules = []ruleFor{nearRule, heldRule}
	}
	for _, rule := range rules {
		ruled, err := addRules(args.Within, rule)
		if changed = changed || ruled; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// ruleFor makes a rule for one range.
type ruleFor func(within string) (*netlink.Rule, error)

func addRules(ranges []string, rule ruleFor) (bool, error) {
	changed := false
	for _, within := range ranges {
		made, err := rule(within)
		if err != nil {
			return changed, err
		}
		err = ruleAdd(&netlink.Handle{}, made)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return changed, fmt.Errorf("pin %s: %w", within, err)
		}
		changed = changed || err == nil
	}
	return changed, nil
}

func removeRules(ranges []string, rule ruleFor) (bool, error) {
	changed := false
	for _, within := range ranges {
		made, err := rule(within)
		if err != nil {
			return changed, err
		}
		err = netlink.RuleDel(made)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return changed, fmt.Errorf("let go of %s: %w", within, err)
		}
		changed = changed || err == nil
	}
	return changed, nil
}

// unpinRoutes removes the rules first, each in one step, then what they led to.
func unpinRoutes(ranges []string) (bool, error) {
	changed, err := removeRules(ranges, heldRule)
	if err != nil {
		return changed, err
	}
	if _, err := removeRules(ranges, nearRule); err != nil {
		return changed, err
	}
	pinned, err := pinnedTable()
	if err != nil {
		return changed, err
	}
	for _, route := range pinned {
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return changed, fmt.Errorf("remove the pinned route %s: %w", route.Dst, err)
		}
	}
	return changed, nil
}

func pinnedTable() ([]netlink.Route, error) {
	all, err := routes()
	return slices.DeleteFunc(all, func(r netlink.Route) bool { return r.Table != heldTable }), err
}

func heldRule(within string) (*netlink.Rule, error) {
	_, to, err := net.ParseCIDR(within)
	if err != nil {
		return nil, fmt.Errorf("the range: %w", err)
	}
	rule := netlink.NewRule()
	rule.Family, rule.Dst, rule.Priority, rule.Table = netlink.FAMILY_V4, to, heldPref, heldTable
	return rule, nil
}

// nearRule comes before heldRule, as it is added first: routes to single addresses serve, which are this node's own
// pods'.
func nearRule(within string) (*netlink.Rule, error) {
	rule, err := heldRule(within)
	if err == nil {
		rule.Table, rule.SuppressPrefixlen = unix.RT_TABLE_MAIN, 31
	}
	return rule, err
}

func (n *Node) yield(ctx context.Context, args step.HoldArgs) (Answer, error) {
	return n.rerouted(ctx, args.Within, func() (Answer, error) { return yield(args) })
}

// yield lets the target's routes serve.
func yield(args step.HoldArgs) (Answer, error) {
	return released(args.Within, func() (int, string, error) { return without(args) },
		"packets to other nodes take the target's routes")
}

// released takes the pin of ranges away, where a look finds that nothing is missing without it.
func released(ranges []string, look func() (count int, missing string, err error), message string) (Answer, error) {
	if _, missing, err := look(); err != nil || missing != "" {
		return Answer{}, cmp.Or(err, errors.New(missing))
	}
	changed, err := unpinRoutes(ranges)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Changed: changed, Message: message}, nil
}

// unhold puts the source's routes first again. Routes that were made in between must be removed before: they
// would be replaced, and then deleted by their owner.
func (n *Node) unhold(ctx context.Context, args step.HoldArgs) (Answer, error) {
	err := until(ctx, carriedWait, func() (string, error) {
		if args.Others > 0 {
			if nodes, err := nodesBehind(args); err != nil || nodes > 0 {
				return fmt.Sprintf("the target still has routes to %d other nodes", nodes), err
			}
			return "", nil
		}
		held, err := heldRoutes(args, step.HeldMetric)
		if err != nil {
			return "", err
		}
		for _, route := range held {
			to, _ := destination(route)
			over, err := routesTo(to, 0)
			if err != nil {
				return "", err
			}
			if len(over) > 0 &&
				!slices.ContainsFunc(over, func(r netlink.Route) bool { return r.LinkIndex == route.LinkIndex }) {
				return fmt.Sprintf("%s still has a route that is not the source's", route.Dst), nil
			}
		}
		return "", nil
	})
	if err != nil {
		return Answer{}, err
	}
	got := Answer{Message: "packets to other nodes go to neighbours, and nothing holds them"}
	if args.Others == 0 {
		if got, err = shift(args, step.HeldMetric, 0); err != nil {
			return got, err
		}
	}
	unpinned, err := unpinRoutes(args.Within)
	got.Changed = got.Changed || unpinned
	return got, err
}

func shift(args step.HoldArgs, from, to int) (Answer, error) {
	routes, err := heldRoutes(args, from)
	if err != nil {
		return Answer{}, err
	}
	for _, route := range routes {
		moved := route
		moved.Priority = to
		if err := netlink.RouteReplace(&moved); err != nil {
			return Answer{}, fmt.Errorf("give the route %s the metric %d: %w", route.Dst, to, err)
		}
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return Answer{}, fmt.Errorf("remove the route %s: %w", route.Dst, err)
		}
	}
	if len(routes) == 0 {
		return Answer{Message: fmt.Sprintf("no route of metric %d", from)}, nil
	}
	return Answer{Changed: true, Message: fmt.Sprintf("%d routes have the metric %d", len(routes), to)}, nil
}

// carried waits until the target has a route for each one that is held and leads to another node.
func (n *Node) carried(ctx context.Context, args step.HoldArgs) (Answer, error) {
	return allThere(ctx, func() (int, string, error) { return without(args) },
		"the target has %d routes to other nodes")
}

// allThere waits until a look finds nothing missing, and says how many it counted then.
func allThere(ctx context.Context, look func() (count int, missing string, err error), message string) (Answer, error) {
	count := 0
	err := until(ctx, carriedWait, func() (missing string, err error) {
		count, missing, err = look()
		return missing, err
	})
	if err != nil {
		return Answer{}, err
	}
	return Answer{Message: fmt.Sprintf(message, count)}, nil
}

// without counts what is held or pinned and leads to other nodes, and names something that the target has no route to.
func without(args step.HoldArgs) (count int, missing string, err error) {
	if args.Others > 0 {
		if count, err = nodesBehind(args); err == nil && count < args.Others {
			missing = fmt.Sprintf("the target has routes to %d of %d other nodes", count, args.Others)
		}
		return count, missing, err
	}
	held, err := heldRoutes(args, step.HeldMetric)
	if err != nil {
		return 0, "", err
	}
	pinned, err := pinnedTable()
	if err != nil {
		return 0, "", err
	}
	seen := map[netip.Prefix]bool{}
	for _, route := range slices.Concat(slices.DeleteFunc(held, func(r netlink.Route) bool { return !leadsOn(r) }),
		pinned) {
		to, _ := destination(route)
		if seen[to] {
			continue
		}
		seen[to] = true
		count++
		ours, err := targetHas(args, to)
		if err != nil {
			return count, "", err
		}
		if !ours {
			return count, fmt.Sprintf("the target has no route to %s", route.Dst), nil
		}
	}
	return count, "", nil
}

// nodesBehind counts the nodes to which routes of the target's lead.
func nodesBehind(args step.HoldArgs) (int, error) {
	links, err := linksOf(args.Target)
	if err != nil {
		return 0, err
	}
	within, err := prefixes(args.Within)
	if err != nil {
		return 0, err
	}
	routes, err := mainRoutes(func(r netlink.Route, to netip.Prefix) bool {
		return r.Gw != nil && links[r.LinkIndex] && inside(within, to)
	})
	nodes := map[string]bool{}
	for _, route := range routes {
		nodes[route.Gw.String()] = true
	}
	return len(nodes), err
}

func targetHas(args step.HoldArgs, destination netip.Prefix) (bool, error) {
	routes, err := routesTo(destination, 0)
	if err != nil {
		return false, err
	}
	links, err := linksOf(args.Target)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(routes, func(r netlink.Route) bool { return links[r.LinkIndex] }), nil
}

// until looks again and again until nothing is missing, for a bounded time.
func until(ctx context.Context, bound time.Duration, look func() (missing string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		missing, err := look()
		if err != nil || missing == "" {
			return err
		}
		if ctx.Err() != nil {
			return errors.New(missing)
		}
		_ = outage.Sleep(ctx, poll)
	}
}

// heldRoutes are the source's routes of the main table within the range that have a metric.
func heldRoutes(args step.HoldArgs, metric int) ([]netlink.Route, error) {
	var within []netip.Prefix
	for _, text := range args.Within {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("the range: %w", err)
		}
		within = append(within, prefix)
	}
	links, err := linksOf(args.Source)
	if err != nil {
		return nil, err
	}
	others, err := linksOf(args.Target)
	if err != nil {
		return nil, err
	}
	many := step.Matches(args.Source, "") // routes by several interfaces at once have none themselves
	return mainRoutes(func(r netlink.Route, to netip.Prefix) bool {
		return r.Priority == metric && (links[r.LinkIndex] || many && len(r.MultiPath) > 0) &&
			!others[r.LinkIndex] && inside(within, to)
	})
}

func routesTo(destination netip.Prefix, metric int) ([]netlink.Route, error) {
	return mainRoutes(func(r netlink.Route, to netip.Prefix) bool { return to == destination && r.Priority == metric })
}

// mainRoutes are routes of the main table, fit to be given to the kernel again: a state of their interface is none
// of theirs.
func mainRoutes(keep func(netlink.Route, netip.Prefix) bool) ([]netlink.Route, error) {
	all, err := routes()
	if err != nil {
		return nil, err
	}
	var kept []netlink.Route
	for _, route := range all {
		if to, ok := destination(route); ok && route.Table == unix.RT_TABLE_MAIN && keep(route, to) {
			route.Flags &= int(netlink.FLAG_ONLINK)
			kept = append(kept, route)
		}
	}
	return kept, nil
}

// linksOf are the indexes of interfaces by patterns.
func linksOf(patterns []string) (map[int]bool, error) {
	all, err := listed(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	found := map[int]bool{}
	for _, link := range all {
		if step.Matches(patterns, link.Attrs().Name) {
			found[link.Attrs().Index] = true
		}
	}
	return found, nil
}
