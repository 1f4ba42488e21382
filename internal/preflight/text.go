package preflight

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

// Style is how text is formatted.
type Style struct {
	// Color uses ANSI colours.
	Color bool
}

func (s Style) paint(code, text string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Text writes a result for people, grouped by severity.
func Text(output io.Writer, result finding.Result, style Style) error {
	w := bufio.NewWriter(output)
	for _, severity := range []finding.Severity{finding.Block, finding.Warn, finding.Info} {
		for _, f := range result.Findings {
			if f.Severity == severity {
				writeFinding(w, f, style)
			}
		}
	}
	writeNotChecked(w, result.NotChecked, style)
	if len(result.Findings)+len(result.NotChecked) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, style.paint("1", verdict(result)))
	return w.Flush()
}

func writeFinding(w io.Writer, f finding.Finding, style Style) {
	label := string(f.Severity)
	if f.Accepted != "" {
		label += " (accepted)"
	}
	color := map[finding.Severity]string{finding.Block: "1;31", finding.Warn: "1;33", finding.Info: "1;36"}[f.Severity]
	fmt.Fprintf(w, "%s %s  %s\n    %s\n", style.paint(color, label), style.paint("1", f.ID),
		printable.Line(f.Subject.String()), printable.Line(f.Message))
	if f.Accepted != "" {
		fmt.Fprintf(w, "    accepted: %s\n", printable.Line(f.Accepted))
	}
	if f.Expired != "" {
		fmt.Fprintf(w, "    %s\n", printable.Line(f.Expired))
	}
	if f.Fix != "" {
		fmt.Fprintf(w, "    fix: %s\n", printable.Line(f.Fix))
	}
}

// writeNotChecked lists the checks that did not run, grouped by reason.
func writeNotChecked(w io.Writer, all []finding.NotChecked, style Style) {
	var reasons []string
	ids := map[string][]string{}
	for _, n := range all {
		if ids[n.Why] == nil {
			reasons = append(reasons, n.Why)
		}
		ids[n.Why] = append(ids[n.Why], n.ID)
	}
	for _, why := range reasons {
		fmt.Fprintf(w, "%s %s\n    %s\n", style.paint("2", "not checked"),
			strings.Join(ids[why], ", "), printable.Line(why))
	}
}

// verdict returns the last line.
func verdict(result finding.Result) string {
	s := result.Summary
	counts := fmt.Sprintf("%d block, %d warn, %d info, %d not checked", s.Block, s.Warn, s.Info, s.NotChecked)
	if result.Blocks() {
		return "This change is blocked: " + counts + "."
	}
	if s.NotChecked > 0 {
		return "No finding blocks, but some checks did not run: " + counts + "."
	}
	return "No finding blocks: " + counts + "."
}

// List writes the catalogue, one line for each check.
func List(output io.Writer, checks []check.Check) error {
	w := bufio.NewWriter(output)
	width := 0
	for _, c := range checks {
		width = max(width, len(c.ID))
	}
	for _, c := range checks {
		fmt.Fprintf(w, "%-*s  %s\n", width, c.ID, c.Title)
	}
	return w.Flush()
}
