package agent

import (
	_ "embed"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed one_node.md
var oneNodeDoc string

// OneNode finds an API server that cannot hold an agent to its own node.
func OneNode() check.Check {
	return check.Check{
		ID:    "agent/one-node",
		Title: "The API server does not hold an agent to its own node",
		Doc:   oneNodeDoc,
		Lacks: func(pass *check.Pass) string {
			if pass.Snapshot.Kubernetes == "" {
				return "the version of Kubernetes is not in the input (kubectl version -o yaml)"
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
		Message: "Kubernetes " + version + " cannot tie an agent to its node: while the change runs, who takes over one node can answer for the others' agents and write their results",
		Fix:     "upgrade Kubernetes to v1.30 first where nodes are not all trusted alike",
	}}
}
