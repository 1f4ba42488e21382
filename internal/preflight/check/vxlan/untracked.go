package vxlan

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed untracked.md
var untrackedDoc string

// Untracked reports a target whose tunnel port is exempt from connection tracking: a masqueraded connection that gets
// this port loses its answers.
func Untracked() check.Check {
	return check.Check{
		ID:    "vxlan/untracked",
		Title: "The target exempts the port of its tunnels from connection tracking",
		Doc:   untrackedDoc,
		Needs: []string{"source", "target"},
		Run:   untracked,
	}
}

func untracked(pass *check.Pass) []finding.Finding {
	port := pass.Target.Capabilities.Untracked
	if port == nil || pass.Source.Capabilities.Untracked != nil {
		return nil
	}
	return []finding.Finding{{
		ID: "vxlan/untracked", Severity: finding.Info, Subject: finding.Subject{Kind: "Network", Name: pass.Target.CNI},
		Message: fmt.Sprintf("%s exempts UDP port %d from connection tracking: of the UDP connections that a node "+
			"masquerades, such as a host's queries to a DNS Service, about one in 64,512 gets "+
			"that source port and no answer",
			pass.Target.CNI, port.Port),
		Evidence: map[string]any{"port": port.Port, "link": port.Link},
		Fix: "use a version of the target that masquerades to other ports, if there is one; otherwise " +
			"nothing, since resolvers retry",
	}}
}
