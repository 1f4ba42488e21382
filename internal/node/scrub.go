package node

import (
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// leftChains are the chains of a table that the patterns mean; built-in chains never are.
func (t table) leftChains(patterns []string) []string {
	var names []string
	for _, c := range t.chains {
		if c.policy == "" && step.Matches(patterns, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

// leftRules are the rules outside the residue's own chains that belong to it: those that jump to one of
// its chains, wherever they are, and those in built-in chains that carry one of its comments, match on
// one of its links, or match on sets of which all are in RuleSets: one with a set of another owner is the other's.
func (t table) leftRules(residue step.Residue) []rule {
	doomed := map[string]bool{}
	for _, name := range t.leftChains(residue.Chains) {
		doomed[name] = true
	}
	builtin := map[string]bool{}
	for _, c := range t.chains {
		builtin[c.name] = c.policy != ""
	}
	var rules []rule
	for _, r := range t.rules {
		if doomed[r.chain] {
			continue
		}
		comment := r.comment()
		single := comment != "" && step.Matches(residue.RuleComments, comment) ||
			len(step.Pick(residue.RuleLinks, r.links())) > 0 ||
			len(r.sets()) > 0 && !slices.ContainsFunc(r.sets(),
				func(set string) bool { return !step.Matches(residue.RuleSets, set) })
		if doomed[r.target()] || builtin[r.chain] && single {
			rules = append(rules, r)
		}
	}
	return rules
}

// scrub is the script for `iptables-restore --noflush` that takes the residue out of the tables and
// nothing else, or empty when there is none. First nothing leads into the chains any more, then they are
// emptied, then they go. The kernel takes each table whole or not at all.
func scrub(tables []table, residue step.Residue) string {
	var script strings.Builder
	for _, t := range tables {
		var lines []string
		for _, r := range t.leftRules(residue) {
			lines = append(lines, "-D "+r.chain+" "+r.spec)
		}
		chains := t.leftChains(residue.Chains)
		for _, name := range chains {
			lines = append(lines, "-F "+name)
		}
		for _, name := range chains {
			lines = append(lines, "-X "+name)
		}
		writeTable(&script, t.name, lines)
	}
	return script.String()
}

// writeTable writes one table's part of a script for iptables-restore.
func writeTable(script *strings.Builder, name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	script.WriteString("*" + name + "\n")
	for _, line := range lines {
		script.WriteString(line + "\n")
	}
	script.WriteString("COMMIT\n")
}
