package agent

import (
	_ "embed"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed one_node.md
var oneNodeDoc string

// OneNode reports an API server that cannot restrict an agent to its own node.
func OneNode() check.Check {
	return check.Check{
		ID:    "agent/one-node",
		Title: "The API server does not hold an agent to its own node",
		Doc:   oneNodeDoc,
		Lacks: func(pass *check.Pass) string {
			if pass.Snapshot.Kubernetes == "" {
				return "the input lacks the version of Kubernetes (add the output of kubectl version -o yaml)"
			}
			return ""
		},
		Run: oneNode,
	}
}

func oneNode(pass *check.Pass) []finding.Finding {
	version := pass.Snapshot.Kubernetes
	if pass.Change.To == "" && !pass.OneNetwork() || cluster.AdmissionPolicies(version) {
		return nil
	}
	return []finding.Finding{{
		ID: "agent/one-node", Severity: finding.Info, Subject: finding.Subject{Kind: "Cluster", Name: version},
		Message: "Kubernetes " + version +
			" cannot restrict an agent to its node: while the change runs, an attacker who " +
			"controls one node can answer for the agents of other nodes and write their results",
		Fix: "if you do not trust all nodes alike, upgrade Kubernetes to v1.30 or later first",
	}}
}
