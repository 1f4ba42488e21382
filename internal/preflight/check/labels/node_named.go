package labels

import (
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed node_named.md
var nodeNamedDoc string

const nodeNamedID = "labels/node-named"

// NodeNamed finds objects that are about one node by its name, where nodes are replaced.
func NodeNamed() check.Check {
	return check.Check{
		ID:    nodeNamedID,
		Title: "An object names a node that is replaced",
		Doc:   nodeNamedDoc,
		Needs: []string{"nodes"},
		Lacks: func(pass *check.Pass) string {
			if pass.Change.ReplaceNodes == "" {
				return "nothing is said that would replace nodes (--replace-nodes)"
			}
			if !pass.Snapshot.UsesCalico() {
				return ""
			}
			for _, resource := range []string{"hostendpoints", "felixconfigurations", "bgpconfigurations", "bgppeers"} {
				if why := pass.MissingCalico(resource); why != "" {
					return why
				}
			}
			return ""
		},
		Run: nodeNamed,
	}
}

// named are Calico's objects that are about one node, with what is lost where that comes back under another name.
func named() []struct {
	kind  string
	field []string // that has the name; none where the object's own name does, after "node."
	loss  string
} {
	return []struct {
		kind  string
		field []string
		loss  string
	}{
		{"HostEndpoint", []string{"spec", "node"}, "no policy guards the new node"},
		{"FelixConfiguration", nil, "the new node's Felix runs without these settings"},
		{"BGPConfiguration", nil, "the new node's BIRD runs without these settings"},
		{"BGPPeer", []string{"spec", "node"}, "the new node does not have this peering"},
		{"CalicoNodeStatus", []string{"spec", "node"}, "nobody reports on the new node"},
	}
}

func nodeNamed(pass *check.Pass) []finding.Finding {
	replaced := pass.Replaced()
	var found []finding.Finding
	for _, one := range named() {
		for _, object := range pass.Snapshot.Calico(one.kind) {
			node := nodeOf(object, one.field)
			if !replaced[node] || object.GetLabels()[createdBy] != "" {
				continue // what Calico makes itself, it makes for the new node too
			}
			found = append(found, finding.Finding{
				ID: nodeNamedID, Severity: finding.Warn, Subject: finding.Subject{Kind: object.GetKind(), Name: object.GetName()},
				Message:  fmt.Sprintf("it is about the node %s by name, which is replaced: unless the new one has the same name, %s", node, one.loss),
				Evidence: map[string]any{"node": node},
				Fix:      fmt.Sprintf("make it for the new node, under its name: kubectl get %s -o yaml", shell.Words(plural(object.GetKind())+"."+object.GroupVersionKind().Group, object.GetName())),
			})
		}
	}
	return append(found, staticVolumes(pass, replaced)...)
}

func nodeOf(object unstructured.Unstructured, field []string) string {
	if field != nil {
		node, _, _ := unstructured.NestedString(object.Object, field...)
		return node
	}
	node, own := strings.CutPrefix(object.GetName(), "node.")
	if !own {
		return ""
	}
	return node
}

// staticVolumes are volumes on a disk of a node that is replaced.
func staticVolumes(pass *check.Pass, replaced map[string]bool) []finding.Finding {
	var found []finding.Finding
	for _, object := range pass.Snapshot.OtherOf("", "PersistentVolume") {
		var volume corev1.PersistentVolume
		if decode(object.Object, &volume) != nil || volume.Spec.Local == nil || volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
			continue
		}
		for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				if e.Key != corev1.LabelHostname || len(e.Values) != 1 || !replaced[e.Values[0]] {
					continue
				}
				found = append(found, finding.Finding{
					ID: nodeNamedID, Severity: finding.Block, Subject: finding.Subject{Kind: "PersistentVolume", Name: volume.Name},
					Message:  fmt.Sprintf("it is a disk of the node %s, which is replaced: what is on it is gone, and its pod is never scheduled again", e.Values[0]),
					Evidence: map[string]any{"node": e.Values[0], "path": volume.Spec.Local.Path},
					Fix:      "move the data before: a further replica elsewhere, or a copy of it",
				})
			}
		}
	}
	return found
}
