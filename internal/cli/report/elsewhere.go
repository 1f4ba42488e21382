package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/proof/probe"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

// maxName bounds what another machine calls itself, in bytes, maxMillis a gap, since no guard is longer, and maxSent
// the probes of a path, so that sums do not overflow.
const maxName, maxMillis, maxSent = 253, 365 * 24 * 3600 * 1000, 1 << 40

// ReadElsewhere reads files of `theseus probe run -o json`, or standard input for -.
func ReadElsewhere(in io.Reader, files []string) (all []report.Elsewhere, err error) {
	for _, file := range files {
		data, err := infile.ReadOr(in, file)
		if err != nil {
			return nil, exit.Fail(exit.Usage, "name a file, or - for standard input", "--with: %w", err)
		}
		documents, err := probe.Parse(data)
		for i := 0; err == nil && i < len(documents); i++ {
			err = sound(documents[i].Status.Paths)
		}
		if err != nil {
			return nil, exit.Fail(exit.Usage, "make one on the other machine with: theseus probe run -o json",
				"--with %s: %w", file, err)
		}
		for _, one := range documents {
			name := strings.TrimSpace(printable.Line(one.Metadata.Name))
			name = strings.ToValidUTF8(name[:min(len(name), maxName)], "")
			name = cmp.Or(name, "another machine")
			all = append(all, report.Elsewhere{Name: name, Paths: one.Spec.Paths, Results: one.Status.Paths})
		}
	}
	return all, nil
}

// sound refuses results that no prober writes.
func sound(results []v1alpha1.PathResult) error {
	for _, result := range results {
		gaps := result.Gaps
		if result.Open != nil {
			gaps = append(slices.Clip(gaps), *result.Open)
		}
		left := result.Sent
		wrong := func(gap v1alpha1.Gap) bool {
			within := gap.Probes >= 0 && gap.Probes <= left && gap.Millis >= 0 && gap.Millis <= maxMillis
			left -= gap.Probes
			return !within
		}
		if result.Sent < 0 || result.Sent > maxSent || result.Answered < 0 || result.Answered > result.Sent ||
			result.Dropped < 0 || slices.ContainsFunc(gaps, wrong) || result.Last.Before(result.Since) {
			return fmt.Errorf("not a measurement: the counts of %s cannot be right", printable.Line(result.ID))
		}
	}
	return nil
}
