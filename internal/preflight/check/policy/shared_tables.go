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

// AgentSharesTables reports a policy agent of the source that would decide about the target's packets.
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
		Message: fmt.Sprintf(
			"%s accepts packets in FORWARD before Felix sees them, and uses mark bits that Felix also uses: "+
				"if both enforce policy in the same table, a packet that one of them would drop can get through",
			agent.Name),
		Evidence: map[string]any{"felixMarkMask": "0xffff0000"},
		Fix: "nothing: Theseus runs Felix in nftables tables of its own while both networks are live; " +
			"it measures denied paths during the whole change, and a gate fails if one of them leaks",
	}
	// An unknown version counts as a new one, as in the driver.
	if v, err := version.ParseSemantic(pass.Target.Version); err == nil && v.LessThan(version.MajorMinor(3, 29)) {
		f.Message += "; Calico " + pass.Target.Version + " has no nftables mode, so Theseus cannot separate the two"
		f.Fix = "use Calico v3.29 or later; with this version a recreated pod is open to pods of its node for a moment"
	}
	return []finding.Finding{f}
}
