package preflight

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// Planned runs the checks that need a plan, after the pass got one. fresh is their result; in all, it replaces what was
// said without a plan.
func Planned(result finding.Result, pass *check.Pass, options Options) (all, fresh finding.Result) {
	again := slices.DeleteFunc(All(), func(c check.Check) bool { return !slices.Contains(c.Needs, "plan") })
	fresh = Run(again, pass, options)
	ran := func(id string) bool {
		return slices.ContainsFunc(again, func(c check.Check) bool { return c.ID == id })
	}
	findings := slices.DeleteFunc(slices.Clone(result.Findings), func(f finding.Finding) bool { return ran(f.ID) })
	notChecked := slices.DeleteFunc(slices.Clone(result.NotChecked),
		func(n finding.NotChecked) bool { return ran(n.ID) })
	all = newResult(append(findings, fresh.Findings...), append(notChecked, fresh.NotChecked...))
	all.Networks = result.Networks
	return all, fresh
}
