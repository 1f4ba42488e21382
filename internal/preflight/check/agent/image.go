// Package agent checks what Theseus itself needs on nodes.
package agent

import (
	"cmp"
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed image.md
var imageDoc string

// Image finds out whether the image of the agent is named.
func Image() check.Check {
	return check.Check{
		ID:    "agent/image",
		Title: "The agent's image is not named or does not exist",
		Doc:   imageDoc,
		Lacks: func(pass *check.Pass) string {
			switch {
			case pass.Change.To != "" || pass.OneNetwork() && pass.Change.AgentImage != "":
				return ""
			case pass.OneNetwork():
				return "no image of theseus-agent is named, without which no plan is made (--agent-image)"
			}
			return "no target network is named (--to)"
		},
		Run: image,
	}
}

func image(pass *check.Pass) []finding.Finding {
	f := finding.Finding{
		ID: "agent/image", Severity: finding.Block,
		Subject: finding.Subject{Kind: "Change", Name: cmp.Or(pass.Change.To, "in-place")},
		Fix:     "name an image that every node can get: --agent-image IMAGE, or THESEUS_AGENT_IMAGE=IMAGE",
	}
	name := pass.Change.AgentImage
	switch {
	case name == "":
		f.Message = "no image of theseus-agent is named: nothing could be changed or measured on any node"
	case strings.ContainsAny(name, " \t\n") || strings.HasSuffix(name, ":") || strings.HasSuffix(name, "/"):
		f.Message = "\"" + name + "\" is no name of an image: the agent could not start on any node"
	case pass.Served != nil && pass.Served.Missing:
		without := lacking(pass.Snapshot.Nodes, name)
		if len(without) == 0 {
			return nil
		}
		f.Message = fmt.Sprintf("the registry has no image %s, and these nodes do not list it either: %s. The agent could not start there",
			name, check.Names(without))
		f.Evidence = map[string]any{"nodes": without[:min(len(without), 20)], "count": len(without)}
		f.Fix = "push the image, or correct its name: --agent-image IMAGE; if every node gets it in another way, accept this: --accept agent/image=REASON"
	default:
		return nil
	}
	return []finding.Finding{f}
}

// lacking are the nodes that do not list an image among those that they have.
func lacking(nodes []corev1.Node, image string) []string {
	var names []string
	for i := range nodes {
		if !check.HasImage(&nodes[i], image) {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}
