package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// world is everything on a node that a residue could name.
type world struct {
	links     []string
	tables    []table // of all families and backends
	nftables  []string
	ipsets    []string
	routes    []netip.Prefix
	confFiles []string
	binaries  []string
	paths     []string // those of the residue that exist, patterns resolved
	keys      Keys
}

// matches says whether a name is what a pattern means: patterns end in * for a prefix.
func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		prefix, open := strings.CutSuffix(pattern, "*")
		if name == pattern || open && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// pick returns the names that the patterns mean, sorted, each once.
func pick(patterns, names []string) []string {
	var picked []string
	for _, name := range names {
		if matches(patterns, name) {
			picked = append(picked, name)
		}
	}
	slices.Sort(picked)
	return slices.Compact(picked)
}

// find is the residue that is there.
func find(residue step.Residue, w world) (step.Residue, error) {
	within, err := prefixes(residue.Routes)
	if err != nil {
		return step.Residue{}, err
	}
	var chains, comments, ruleLinks, routes []string
	for _, t := range w.tables {
		chains = append(chains, t.leftChains(residue.Chains)...)
		for _, r := range t.leftRules(residue) {
			if matches(residue.RuleComments, r.comment()) {
				comments = append(comments, r.comment())
			}
			ruleLinks = append(ruleLinks, pick(residue.RuleLinks, r.links())...)
		}
	}
	for _, route := range w.routes {
		if inside(within, route) {
			routes = append(routes, route.String())
		}
	}
	all := []string{"*"}
	return step.Residue{
		Links:        pick(residue.Links, w.links),
		Chains:       pick(all, chains),
		RuleComments: pick(all, comments),
		RuleLinks:    pick(all, ruleLinks),
		NFTables:     pick(residue.NFTables, w.nftables),
		IPSets:       pick(residue.IPSets, w.ipsets),
		Routes:       pick(all, routes),
		ConfFiles:    pick(residue.ConfFiles, w.confFiles),
		Binaries:     pick(residue.Binaries, w.binaries),
		Paths:        pick(all, w.paths),
		Annotations:  pick(residue.Annotations, w.keys.Annotations),
		NodeLabels:   pick(residue.NodeLabels, w.keys.Labels),
		Taints:       pick(residue.Taints, w.keys.Taints),
		Farewells:    pick(residue.Farewells, w.keys.Unavailable),
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
