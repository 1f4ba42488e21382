package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// Options select checks. An entry is an ID ("workload/bare-pod") or a topic ("workload").
type Options struct {
	// Only, if not empty, runs these and no others.
	Only []string
	// Skip omits these, each with a reason for the result.
	Skip map[string]string
	// Accept marks findings of these as accepted, each with a reason: they no longer block.
	Accept map[string]string
	// Accepted are also accepted, each until a day; Now decides which still apply.
	Accepted []v1alpha1.AcceptedFinding
	Now      time.Time
}

// Choose returns the checks to run, including those that Skip then reports as skipped.
func (o Options) Choose(checks []check.Check) []check.Check {
	if len(o.Only) == 0 {
		return checks
	}
	var chosen []check.Check
	for _, c := range checks {
		if slices.ContainsFunc(o.Only, func(entry string) bool { return names(entry, c.ID) }) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// Validate refuses entries that name no check or have no reason.
func (o Options) Validate(checks []check.Check) error {
	entries := slices.Clone(o.Only)
	for _, reasons := range []map[string]string{o.Skip, o.Accept} {
		for _, entry := range slices.Sorted(maps.Keys(reasons)) {
			if strings.TrimSpace(reasons[entry]) == "" {
				return fmt.Errorf("%s: a reason is required, as in %s=\"known, ticket 123\"", entry, entry)
			}
			entries = append(entries, entry)
		}
	}
	for _, entry := range o.Accepted {
		if err := validAcceptance(entry); err != nil {
			return err
		}
		entries = append(entries, entry.ID)
	}
	for _, entry := range entries {
		if !slices.ContainsFunc(checks, func(c check.Check) bool { return names(entry, c.ID) }) {
			return fmt.Errorf("there is no check %q", entry)
		}
	}
	return nil
}

// Run runs the checks. The result is in a stable order: blockers first, then by id and subject. A check that
// lacks evidence, that was skipped, or that failed is among NotChecked, and never passes.
func Run(checks []check.Check, pass *check.Pass, options Options) finding.Result {
	findings := []finding.Finding{} // JSON has a list, even when nothing was found
	var notChecked []finding.NotChecked
	for _, c := range options.Choose(checks) {
		if why, skipped := lookup(options.Skip, c.ID); skipped {
			notChecked = append(notChecked, finding.NotChecked{ID: c.ID, Why: "skipped: " + why})
			continue
		}
		found, why := runOne(c, pass)
		if why != "" {
			notChecked = append(notChecked, finding.NotChecked{ID: c.ID, Why: why})
			continue
		}
		findings = append(findings, found...)
		if why := c.Partly(pass); why != "" {
			notChecked = append(notChecked, finding.NotChecked{ID: c.ID, Why: "in part: " + why})
		}
	}
	for i := range findings {
		findings[i].URL = URL(findings[i].ID)
		options.accept(&findings[i])
	}
	return newResult(findings, notChecked)
}

// newResult puts findings into their order.
func newResult(findings []finding.Finding, notChecked []finding.NotChecked) finding.Result {
	slices.SortStableFunc(findings, compare)
	slices.SortStableFunc(notChecked, func(a, b finding.NotChecked) int { return cmp.Compare(a.ID, b.ID) })
	return finding.NewResult(findings, notChecked)
}

// runOne runs one check. A check that panics is reported as not checked, and does not affect the others.
func runOne(c check.Check, pass *check.Pass) (found []finding.Finding, why string) {
	defer func() {
		if failure := recover(); failure != nil {
			found, why = nil, fmt.Sprintf("the check crashed, which is a bug in Theseus: %v", failure)
		}
	}()
	if why := c.Missing(pass); why != "" {
		return nil, why
	}
	return c.Run(pass), ""
}

// URL returns the address of a check's page.
func URL(id string) string {
	return "https://github.com/theseus-cni/theseus/blob/main/docs/checks/" + PageName(id)
}

// PageName returns the file of a check's page in docs/checks.
func PageName(id string) string { return strings.ReplaceAll(id, "/", "-") + ".md" }

// Page returns the page of a check in Markdown, which `theseus explain` also prints.
func Page(c check.Check) string {
	needs := ""
	if len(c.Some) > 0 {
		needs = "\nOptional input, at least one of: " + inCode(c.Some) +
			".\nThe check reports each missing one as \"not checked\".\n"
	}
	if len(c.Needs) > 0 {
		needs += "\nRequired input: " + inCode(c.Needs) + ".\nWithout it the check reports \"not checked\", and why.\n"
	}
	return fmt.Sprintf("# %s\n\n%s\n\n%s\n%s", c.ID, c.Title, strings.TrimSpace(c.Doc), needs)
}

// maxColumns is how wide a page is.
const maxColumns = 110

// inCode lists names, on a second line from where the first, which begins with other words, would be too wide.
func inCode(names []string) string {
	const begun = len("Optional input, at least one of: ")
	text, width := "", begun
	for i, name := range names {
		one := "`" + name + "`"
		switch {
		case i == 0:
		case width+len(", ")+len(one)+len(".") > maxColumns:
			text, width = text+",\n", 0
		default:
			text, width = text+", ", width+len(", ")
		}
		text, width = text+one, width+len(one)
	}
	return text
}

func compare(a, b finding.Finding) int {
	return cmp.Or(
		cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(a.ID, b.ID),
		cmp.Compare(a.Subject.Kind, b.Subject.Kind), cmp.Compare(a.Subject.Namespace, b.Subject.Namespace),
		cmp.Compare(a.Subject.Name, b.Subject.Name), cmp.Compare(a.Message, b.Message))
}

func rank(s finding.Severity) int {
	return slices.Index([]finding.Severity{finding.Block, finding.Warn, finding.Info}, s)
}

// names reports whether an entry, an ID or a topic, covers an ID.
func names(entry, id string) bool {
	return entry == id || strings.HasPrefix(id, strings.TrimSuffix(entry, "/")+"/")
}

// lookup returns the reason for an ID, or else for its topic.
func lookup(reasons map[string]string, id string) (string, bool) {
	if reason, ok := reasons[id]; ok {
		return reason, true
	}
	for _, entry := range slices.Sorted(maps.Keys(reasons)) {
		if names(entry, id) {
			return reasons[entry], true
		}
	}
	return "", false
}
