package policy

import (
	"cmp"
	_ "embed"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed agent_shares_tables.md
var sharedTablesDoc string

// AgentSharesTables finds an agent of the source that enforces policy and would decide over the target's packets.
func AgentSharesTables() check.Check {
	return check.Check{
		ID:    "policy/agent-shares-tables",
		Title: "The present network's policy agent and the target's share a packet filter",
		Doc:   sharedTablesDoc,
		Needs: []string{"source", "target"},
		Run:   sharedTables,
	}
}

func sharedTables(pass *check.Pass) []finding.Finding {
	if pass.Source.Capabilities.Policy != cni.PolicyKubernetes || pass.Target.CNI != "calico" {
		return nil
	}
	agent := cmp.Or(pass.Source.PolicyAgent, &pass.Source.Agent)
	f := finding.Finding{
		ID: "policy/agent-shares-tables", Severity: finding.Warn,
		Subject: finding.Subject{Kind: agent.Kind, Namespace: agent.Namespace, Name: agent.Name},
		Message: fmt.Sprintf("%s accepts packets in FORWARD before Felix is asked, and uses mark bits that Felix uses too: "+
			"where both enforce policy in one table, a packet that either would drop can get through", agent.Name),
		Evidence: map[string]any{"felixMarkMask": "0xffff0000"},
		Fix: "leave it to Theseus, which runs Felix in nftables tables of its own while both are there; " +
			"denied paths are measured throughout, and the gate lets none of them through",
	}
	// A version that nobody knows is taken for a new one, as the driver does.
	if v, err := version.ParseSemantic(pass.Target.Version); err == nil && v.LessThan(version.MajorMinor(3, 29)) {
		f.Message += "; Calico " + pass.Target.Version + " has no nftables mode, so Theseus cannot keep the two apart"
		f.Fix = "take Calico v3.29 or later, or know that a pod that was made anew is open for a moment to pods of its node"
	}
	return []finding.Finding{f}
}
