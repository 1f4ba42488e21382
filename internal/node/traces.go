package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// mostTraces bounds each list of traces: a node of a large cluster has thousands of routes.
const mostTraces = 100

// traces looks for what networks leave in a kernel; chains are those of iptables, of all families and backends.
func (n *Node) traces(ctx context.Context, chains map[string]int) (*cluster.Traces, error) {
	found := &cluster.Traces{Chains: chains}
	var err error
	if found.NFTables, err = n.nftables(ctx, true); err != nil {
		return nil, err
	}
	slices.Sort(found.NFTables)
	all, err := routes()
	if err != nil {
		return nil, err
	}
	for _, route := range all {
		to, ok := destination(route)
		switch {
		case !ok || to.Addr().IsLinkLocalUnicast() || to.Addr().IsMulticast():
		case route.Type != unix.RTN_UNICAST && route.Type != unix.RTN_THROW:
			found.Blackholes = append(found.Blackholes, to.String())
		case route.Type == unix.RTN_UNICAST && route.Gw != nil && route.Table == unix.RT_TABLE_MAIN:
			found.Reached = append(found.Reached, to.String())
		}
	}
	rules, err := listed(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the routing rules: %w", err)
	}
	for _, rule := range rules {
		if text := ruleText(rule); text != "" {
			found.Rules = append(found.Rules, text)
		}
	}
	for _, list := range []*[]string{&found.Blackholes, &found.Reached, &found.Rules} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
		*list = (*list)[:min(len(*list), mostTraces)]
	}
	return found, nil
}

// ruleText is a rule of policy routing much as ip prints it; empty for the kernel's own three.
func ruleText(r netlink.Rule) string {
	anybody := r.Src == nil && r.Dst == nil && r.Mark == 0 && r.IifName == "" && r.OifName == ""
	if anybody && (r.Priority == 0 && r.Table == unix.RT_TABLE_LOCAL || r.Table == unix.RT_TABLE_MAIN ||
		r.Table == unix.RT_TABLE_DEFAULT) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", r.Priority)
	if r.Src != nil {
		fmt.Fprintf(&b, " from %s", r.Src)
	}
	if r.Dst != nil {
		fmt.Fprintf(&b, " to %s", r.Dst)
	}
	if r.Mark != 0 {
		fmt.Fprintf(&b, " fwmark %#x", r.Mark)
	}
	if r.IifName != "" {
		fmt.Fprintf(&b, " iif %s", r.IifName)
	}
	if r.OifName != "" {
		fmt.Fprintf(&b, " oif %s", r.OifName)
	}
	fmt.Fprintf(&b, " lookup %d", r.Table)
	return b.String()
}

// families counts a table's own chains by the beginning of their names, up to the first dash or underscore.
func (t *table) families(count map[string]int) {
	for _, c := range t.chains {
		if c.policy != "" {
			continue
		}
		name := c.name
		if at := strings.IndexAny(name, "-_"); at > 0 {
			name = name[:at+1]
		}
		count[name]++
	}
}
