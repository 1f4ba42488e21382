package step

import (
	"slices"
	"strings"
)

// Residue is what a network leaves on nodes and in the API; the agent's verbs "inventory" and "clean"
// take it as their argument. Patterns end in * for a prefix, and are names otherwise.
type Residue struct {
	// Links are interface names or prefixes, such as "flannel.1" and "cali*".
	Links []string `json:"links,omitempty"`
	// Chains are iptables chains in any table, such as "FLANNEL-*". Rules that jump to them go too.
	Chains []string `json:"chains,omitempty"`
	// RuleComments are comments of single iptables rules in built-in chains.
	RuleComments []string `json:"ruleComments,omitempty"`
	// RuleLinks are interfaces: single iptables rules in built-in chains that match on them go.
	RuleLinks []string `json:"ruleLinks,omitempty"`
	// RuleSets are ipsets: single iptables rules in built-in chains go that match on sets, all of them of these names.
	RuleSets []string `json:"ruleSets,omitempty"`
	// NFTables are nft tables, as "family name".
	NFTables []string `json:"nftables,omitempty"`
	IPSets   []string `json:"ipsets,omitempty"`
	// Routes are destinations (CIDRs) within which every route goes, blackholes too.
	Routes []string `json:"routes,omitempty"`
	// Rules are policy routing rules, as "TABLE CIDR": each rule goes that looks up that table for packets from within
	// that range.
	Rules []string `json:"rules,omitempty"`
	// ConfFiles are in the folder of CNI configurations that the node's runtime reads, Binaries in those of plugins.
	ConfFiles []string `json:"confFiles,omitempty"`
	Binaries  []string `json:"binaries,omitempty"`
	// Paths are files and folders of the node, absolute.
	Paths []string `json:"paths,omitempty"`
	// Annotations, NodeLabels and Taints are keys on Node objects. No agent may write those; the engine does.
	Annotations []string `json:"annotations,omitempty"`
	NodeLabels  []string `json:"nodeLabels,omitempty"`
	Taints      []string `json:"taints,omitempty"`
	// Farewells are reasons for which a Node's network is marked as unavailable, by an agent that ends.
	Farewells []string `json:"farewells,omitempty"`
}

// Inventory is what of a residue is there on one node: the same shape, with names instead of patterns.
type Inventory struct {
	Node  string  `json:"node"`
	Found Residue `json:"found"`
}

// Count is how many things an inventory holds.
func (r Residue) Count() int {
	n := 0
	for _, list := range [][]string{r.Links, r.Chains, r.RuleComments, r.RuleLinks, r.RuleSets, r.NFTables, r.IPSets,
		r.Routes, r.Rules, r.ConfFiles, r.Binaries, r.Paths, r.Annotations, r.NodeLabels, r.Taints, r.Farewells} {
		n += len(list)
	}
	return n
}

// Without is a residue but for what is in another one, pattern by pattern.
func (r Residue) Without(other Residue) Residue {
	for _, lists := range [][2]*[]string{{&r.Links, &other.Links}, {&r.Chains, &other.Chains},
		{&r.RuleComments, &other.RuleComments}, {&r.RuleLinks, &other.RuleLinks}, {&r.NFTables, &other.NFTables},
		{&r.IPSets, &other.IPSets}, {&r.Routes, &other.Routes}, {&r.ConfFiles, &other.ConfFiles},
		{&r.Binaries, &other.Binaries}, {&r.Paths, &other.Paths}, {&r.Annotations, &other.Annotations},
		{&r.NodeLabels, &other.NodeLabels}, {&r.Taints, &other.Taints}, {&r.Farewells, &other.Farewells}} {
		*lists[0] = slices.DeleteFunc(slices.Clone(*lists[0]),
			func(pattern string) bool { return slices.Contains(*lists[1], pattern) })
	}
	return r
}

// Split parts what is on the node itself, of which its agent takes care, from what is on its Node object in the API, of
// which the engine does: an agent that could write a Node could write all of them.
func (r Residue) Split() (host, object Residue) {
	object = Residue{Annotations: r.Annotations, NodeLabels: r.NodeLabels, Taints: r.Taints, Farewells: r.Farewells}
	host = r
	host.Annotations, host.NodeLabels, host.Taints, host.Farewells = nil, nil, nil, nil
	return host, object
}

// Matches says whether a name is what a pattern means: patterns end in * for a prefix.
func Matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		prefix, open := strings.CutSuffix(pattern, "*")
		if name == pattern || open && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Pick returns the names that the patterns mean, sorted, each once.
func Pick(patterns, names []string) []string {
	var picked []string
	for _, name := range names {
		if Matches(patterns, name) {
			picked = append(picked, name)
		}
	}
	slices.Sort(picked)
	return slices.Compact(picked)
}
