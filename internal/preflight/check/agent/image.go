// Package agent checks what Theseus' own agent needs: its image, and an API server that restricts it to its node.
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

// Image reports a change that does not name the agent's image, or names one that does not exist.
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
				return "the change names no image of theseus-agent (--agent-image): a plan needs one"
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
		Fix:     "name an image that every node has or can pull: --agent-image IMAGE, or THESEUS_AGENT_IMAGE=IMAGE",
	}
	name := pass.Change.AgentImage
	switch {
	case name == "":
		f.Message = "the change names no image of theseus-agent: Theseus could change and measure nothing on any node"
	case strings.ContainsAny(name, " \t\n") || strings.HasSuffix(name, ":") || strings.HasSuffix(name, "/"):
		f.Message = "\"" + name + "\" is not an image name: the agent could not start on any node"
	case pass.Served != nil && pass.Served.Missing:
		without := lacking(pass.Snapshot.Nodes, name)
		if len(without) == 0 {
			return nil
		}
		f.Message = fmt.Sprintf(
			"the agent could not start on %s: the registry has no image %s, and these nodes do not list it",
			check.Names(without), name)
		f.Evidence = map[string]any{"nodes": without[:min(len(without), 20)], "count": len(without)}
		f.Fix = "push the image, or correct its name: --agent-image IMAGE; if every node gets it another way: " +
			"--accept agent/image=REASON"
	default:
		return nil
	}
	return []finding.Finding{f}
}

// lacking returns the nodes whose list of images lacks this one.
func lacking(nodes []corev1.Node, image string) []string {
	var names []string
	for i := range nodes {
		if !check.HasImage(&nodes[i], image) {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}
