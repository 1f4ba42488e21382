package node

import (
	_ "embed"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed image_absent.md
var imageAbsentDoc string

// listed is how many images a kubelet lists at most by default (nodeStatusMaxImages).
const listed = 50

// ImageAbsent reports nodes that do not have the target's images yet.
func ImageAbsent() check.Check {
	return check.Check{
		ID:    "node/image-absent",
		Title: "The target's images are not on the nodes yet",
		Doc:   imageAbsentDoc,
		Needs: []string{"target", "nodes"},
		Lacks: func(pass *check.Pass) string {
			if !slices.ContainsFunc(pass.Snapshot.Nodes, func(n corev1.Node) bool { return len(n.Status.Images) > 0 }) {
				return "no node lists its images"
			}
			return ""
		},
		Run: imageAbsent,
	}
}

func imageAbsent(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for _, image := range wantedImages(pass) {
		var without []string
		unknown := 0
		for i := range pass.Snapshot.Nodes {
			switch node := &pass.Snapshot.Nodes[i]; {
			case check.HasImage(node, image):
			case len(node.Status.Images) == 0 || len(node.Status.Images) >= listed:
				unknown++
			default:
				without = append(without, node.Name)
			}
		}
		if len(without) == 0 {
			continue
		}
		f := finding.Finding{
			ID: "node/image-absent", Severity: finding.Warn, Subject: finding.Subject{Kind: "Image", Name: image},
			Message: fmt.Sprintf("it is missing on %s: a node pulls it in the middle of its own change, "+
				"and waits for the registry",
				cluster.Count(len(without), "node")),
			Evidence: map[string]any{"nodes": without[:min(len(without), 20)],
				"count": len(without), "notKnown": unknown},
			Fix: "pull it before the change, with a DaemonSet that only pulls it, or on each node: crictl pull " +
				image,
		}
		found = append(found, f)
	}
	return found
}

// wantedImages returns the images that every node needs: of the target's DaemonSets, and of Theseus' agent.
func wantedImages(pass *check.Pass) []string {
	var images []string
	if pass.Change.AgentImage != "" {
		images = append(images, pass.Change.AgentImage)
	}
	for _, object := range pass.Manifest {
		if object.GetKind() != "DaemonSet" {
			continue
		}
		for _, list := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", list)
			for _, container := range containers {
				fields, _ := container.(map[string]any)
				if image, ok := fields["image"].(string); ok && !slices.Contains(images, image) {
					images = append(images, image)
				}
			}
		}
	}
	return images
}
