package policy

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed known_defect.md
var defectDoc string

const defectID = "policy/known-defect"

// KnownDefect reports a version of a network that is known to let packets past policy.
func KnownDefect() check.Check {
	return check.Check{
		ID:    defectID,
		Title: "A known defect of the network lets packets bypass policy",
		Doc:   defectDoc,
		Needs: []string{"source"},
		Run:   knownDefect,
	}
}

func knownDefect(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	add := func(network *cni.Installation, severity finding.Severity, whose string) {
		if network == nil || network.Defect == nil {
			return
		}
		found = append(found, finding.Finding{
			ID: defectID, Severity: severity, Subject: finding.Subject{Kind: "Network", Name: network.CNI},
			Message: fmt.Sprintf("%s %s with %s settings has a known defect: %s", network.Title(), network.Version,
				whose, network.Defect.Says),
			Evidence: map[string]any{"source": network.Defect.Source},
			Fix:      network.Defect.Fix,
		})
	}
	add(pass.Source, finding.Warn, "its current")
	if pass.Target != nil && (pass.Source == nil || pass.Source.Defect == nil || pass.Target.CNI != pass.Source.CNI ||
		pass.Target.Version != pass.Source.Version) {
		add(pass.Target, finding.Block, "the manifest's")
	}
	return found
}
