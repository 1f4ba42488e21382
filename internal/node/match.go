package node

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// world is everything on a node that a residue could name.
type world struct {
	links     []string
	tables    []table // of all families and backends
	nftables  []string
	ipsets    []string
	routes    []netip.Prefix
	rules     []string // policy routing rules, as step.Residue has them
	confFiles []string
	binaries  []string
	paths     []string // those of the residue that exist, patterns resolved
}

// find is the residue that is there.
func find(residue step.Residue, w world) (step.Residue, error) {
	within, err := prefixes(residue.Routes)
	if err != nil {
		return step.Residue{}, err
	}
	var chains, comments, ruleLinks, ruleSets, routes []string
	for _, t := range w.tables {
		chains = append(chains, t.leftChains(residue.Chains)...)
		for _, r := range t.leftRules(residue) {
			if step.Matches(residue.RuleComments, r.comment()) {
				comments = append(comments, r.comment())
			}
			ruleLinks = append(ruleLinks, step.Pick(residue.RuleLinks, r.links())...)
			ruleSets = append(ruleSets, step.Pick(residue.RuleSets, r.sets())...)
		}
	}
	for _, route := range w.routes {
		if inside(within, route) {
			routes = append(routes, route.String())
		}
	}
	rules, err := leftPolicy(residue.Rules, w.rules)
	if err != nil {
		return step.Residue{}, err
	}
	all := []string{"*"}
	return step.Residue{
		Links:        step.Pick(residue.Links, w.links),
		Chains:       step.Pick(all, chains),
		RuleComments: step.Pick(all, comments),
		RuleLinks:    step.Pick(all, ruleLinks),
		RuleSets:     step.Pick(all, ruleSets),
		NFTables:     step.Pick(residue.NFTables, w.nftables),
		IPSets:       step.Pick(residue.IPSets, w.ipsets),
		Routes:       step.Pick(all, routes),
		Rules:        step.Pick(all, rules),
		ConfFiles:    step.Pick(residue.ConfFiles, w.confFiles),
		Binaries:     step.Pick(residue.Binaries, w.binaries),
		Paths:        step.Pick(all, w.paths),
	}, nil
}

// prefixes reads CIDRs. Everything (a default route) is never a residue.
func prefixes(cidrs []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("read a CIDR: %w", err)
		}
		if prefix.Bits() == 0 {
			return nil, fmt.Errorf("%s holds every route", cidr)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// inside says whether a destination lies wholly in one of the ranges.
func inside(within []netip.Prefix, destination netip.Prefix) bool {
	return slices.ContainsFunc(within, func(p netip.Prefix) bool {
		return destination.Bits() >= p.Bits() && p.Contains(destination.Addr())
	})
}
