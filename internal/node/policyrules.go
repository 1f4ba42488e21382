package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// policyRules are the rules of policy routing that look up a table for packets from a range, as "TABLE CIDR".
func policyRules() ([]string, error) {
	all, err := listed(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the policy routing rules: %w", err)
	}
	var rules []string
	for i := range all {
		if name, ok := policyName(&all[i]); ok {
			rules = append(rules, name)
		}
	}
	return rules, nil
}

// policyName is false for a rule that matches on anything besides its source, or does more than look up a table.
func policyName(rule *netlink.Rule) (string, bool) {
	switch {
	case rule.Src == nil || rule.Dst != nil || rule.IifName != "" || rule.OifName != "" || rule.Invert,
		rule.Mark != 0 || rule.Mask != nil || rule.Tos != 0 || rule.TunID != 0,
		rule.IPProto != 0 || rule.Sport != nil || rule.Dport != nil || rule.UIDRange != nil,
		rule.SuppressPrefixlen >= 0 || rule.SuppressIfgroup >= 0 || rule.Goto >= 0,
		rule.Type != unix.RTN_UNSPEC && rule.Type != unix.RTN_UNICAST:
		return "", false
	}
	address, ok := netip.AddrFromSlice(rule.Src.IP)
	bits, size := rule.Src.Mask.Size()
	if size == 32 {
		address = address.Unmap()
	}
	return fmt.Sprintf("%d %s", rule.Table, netip.PrefixFrom(address, bits)), ok
}

// leftPolicy are the rules that a residue means, of those that are there.
func leftPolicy(residue, present []string) ([]string, error) {
	var left []string
	for _, wanted := range residue {
		table, cidr, _ := strings.Cut(wanted, " ")
		within, err := prefixes([]string{cidr})
		if err != nil {
			return nil, err
		}
		for _, rule := range present {
			of, from, _ := strings.Cut(rule, " ")
			source, err := netip.ParsePrefix(from)
			if err == nil && of == table && inside(within, source) {
				left = append(left, rule)
			}
		}
	}
	return left, nil
}

// removePolicy removes rules by the names that policyRules gives them. It names the priority and the protocol of each
// as well: without them, the kernel takes the first rule with that source and table.
func removePolicy(names []string) error {
	if len(names) == 0 {
		return nil
	}
	all, err := listed(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list the policy routing rules: %w", err)
	}
	var errs []error
	for i := range all {
		name, ok := policyName(&all[i])
		if !ok || !slices.Contains(names, name) {
			continue
		}
		all[i].Type = unix.RTN_UNICAST // a list does not say the type: a rule of another one stays
		if err := netlink.RuleDel(&all[i]); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove the policy routing rule %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
