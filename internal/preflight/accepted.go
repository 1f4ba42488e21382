package preflight

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

// AcceptedKind is the kind of a file of accepted findings.
const AcceptedKind = "AcceptedFindings"

// ParseAccepted reads a file of accepted findings (YAML or JSON). Every entry has a reason and a last day, since an
// entry without an end would be forgotten.
func ParseAccepted(data []byte) ([]v1alpha1.AcceptedFinding, error) {
	var file struct {
		APIVersion string                     `json:"apiVersion"`
		Kind       string                     `json:"kind"`
		Accepted   []v1alpha1.AcceptedFinding `json:"accepted"`
	}
	if err := bounded.UnmarshalStrict(data, &file); err != nil {
		return nil, err
	}
	if file.APIVersion != v1alpha1.APIVersion || file.Kind != AcceptedKind {
		return nil, fmt.Errorf("apiVersion %q and kind %q, not %s and %s",
			file.APIVersion, file.Kind, v1alpha1.APIVersion, AcceptedKind)
	}
	for i, entry := range file.Accepted {
		if err := validAcceptance(entry); err != nil {
			return nil, fmt.Errorf("accepted[%d]: %w", i, err)
		}
	}
	return file.Accepted, nil
}

func validAcceptance(a v1alpha1.AcceptedFinding) error {
	if a.ID == "" || strings.TrimSpace(a.Reason) == "" {
		return fmt.Errorf("id and reason are required")
	}
	if _, err := end(a); err != nil {
		return fmt.Errorf("%s: until is %q, and must be a day such as 2026-12-31", a.ID, a.Until)
	}
	if _, err := path.Match(a.Subject, ""); err != nil {
		return fmt.Errorf("%s: subject %q: %w", a.ID, a.Subject, err)
	}
	return nil
}

// end returns the time from which the entry no longer applies.
func end(a v1alpha1.AcceptedFinding) (time.Time, error) {
	day, err := time.Parse(time.DateOnly, a.Until)
	return day.AddDate(0, 0, 1), err
}

func accepts(a v1alpha1.AcceptedFinding, f finding.Finding) bool {
	if !names(a.ID, f.ID) {
		return false
	}
	if a.Subject == "" {
		return true
	}
	ok, err := path.Match(a.Subject, f.Subject.String())
	return ok && err == nil
}

// accept marks a finding with the first entry that applies, or else with an expired one.
func (o Options) accept(f *finding.Finding) {
	if reason, ok := lookup(o.Accept, f.ID); ok {
		f.Accepted = reason
		return
	}
	for _, entry := range o.Accepted {
		if !accepts(entry, *f) {
			continue
		}
		if last, err := end(entry); err == nil && o.Now.Before(last) {
			f.Accepted, f.Expired = entry.Reason+" (until "+entry.Until+")", ""
			return
		}
		f.Expired = "accepted only until " + entry.Until + ": " + entry.Reason
	}
}

// Unused returns the entries of a file that match no finding of a check that ran.
func (o Options) Unused(result finding.Result) []v1alpha1.AcceptedFinding {
	var unused []v1alpha1.AcceptedFinding
	for _, entry := range o.Accepted {
		needed := len(o.Only) > 0
		for _, n := range result.NotChecked {
			needed = needed || names(entry.ID, n.ID)
		}
		for _, f := range result.Findings {
			needed = needed || accepts(entry, f)
		}
		if !needed {
			unused = append(unused, entry)
		}
	}
	return unused
}
