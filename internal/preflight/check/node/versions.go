package node

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed versions.md
var versionsDoc string

// Versions reports an upgrade of Kubernetes that is in progress or unfinished.
func Versions() check.Check {
	return check.Check{
		ID:    "node/versions",
		Title: "The nodes run several versions of Kubernetes, as in the middle of an upgrade",
		Doc:   versionsDoc,
		Needs: []string{"nodes"},
		Run:   versions,
	}
}

func versions(pass *check.Pass) []finding.Finding {
	nodes := map[string][]string{} // by the kubelet's version
	for i := range pass.Snapshot.Nodes {
		node := &pass.Snapshot.Nodes[i]
		if version := release(node.Status.NodeInfo.KubeletVersion); version != "" {
			nodes[version] = append(nodes[version], node.Name)
		}
	}
	kubelets := slices.Sorted(maps.Keys(nodes))
	server := release(pass.Snapshot.Kubernetes)
	differ := func(of func(string) string) bool {
		return slices.ContainsFunc(kubelets, func(v string) bool {
			return of(v) != of(kubelets[0]) || server != "" && of(v) != of(server)
		})
	}
	if !differ(release) {
		return nil
	}
	severity := finding.Info
	if differ(minor) {
		severity = finding.Warn
	}
	var parts []string
	if server != "" {
		parts = append(parts, "the API server is "+server)
	}
	for _, version := range kubelets {
		parts = append(parts, fmt.Sprintf("the kubelets of %s are %s (%s)", cluster.Count(len(nodes[version]), "node"),
			version, check.Names(nodes[version])))
	}
	fewest := slices.MinFunc(kubelets, func(a, b string) int { return len(nodes[a]) - len(nodes[b]) })
	return []finding.Finding{{
		ID: "node/versions", Severity: severity, Subject: finding.Subject{Kind: "Node", Name: nodes[fewest][0]},
		Message: strings.Join(parts, ", ") +
			": an upgrade of Kubernetes in progress moves pods and restarts nodes by itself, and a run " +
			"pauses each time a version changes",
		Evidence: map[string]any{"server": server, "kubelets": kubelets},
		Fix:      "finish the upgrade first; if the versions differ permanently, do nothing",
	}}
}

// release returns a version without a distribution's suffix, as in v1.31.4+k3s1.
func release(version string) string {
	if cut := strings.IndexAny(version, "-+"); cut >= 0 {
		return version[:cut]
	}
	return version
}

// minor returns v1.31 for v1.31.4.
func minor(version string) string {
	return version[:max(0, strings.LastIndex(version, "."))]
}
