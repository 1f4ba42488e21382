package node

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
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

// policyName is false for a rule that matches on anything besides its source.
func policyName(rule *netlink.Rule) (string, bool) {
	if rule.Src == nil || rule.Dst != nil || rule.IifName != "" || rule.OifName != "" || rule.Mark != 0 || rule.Invert {
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

// removePolicy removes rules by the names that policyRules gives them.
func removePolicy(names []string) error {
	var errs []error
	for _, name := range names {
		table, cidr, _ := strings.Cut(name, " ")
		number, err := strconv.Atoi(table)
		source, parsing := netlink.ParseIPNet(cidr)
		if err != nil || parsing != nil {
			errs = append(errs, errors.Join(err, parsing))
			continue
		}
		rule := netlink.NewRule()
		rule.Table, rule.Src, rule.Family = number, source, unix.AF_INET
		if source.IP.To4() == nil {
			rule.Family = unix.AF_INET6
		}
		if err := netlink.RuleDel(rule); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove the policy routing rule from %s to table %s: %w", cidr, table, err))
		}
	}
	return errors.Join(errs...)
}
