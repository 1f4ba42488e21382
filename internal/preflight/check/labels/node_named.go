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

// NodeNamed reports objects that refer by name to a node that is replaced.
func NodeNamed() check.Check {
	return check.Check{
		ID:    nodeNamedID,
		Title: "An object names a node that is replaced",
		Doc:   nodeNamedDoc,
		Needs: []string{"nodes"},
		Lacks: func(pass *check.Pass) string {
			if pass.Change.ReplaceNodes == "" {
				return "the change replaces no nodes (--replace-nodes)"
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

// named returns Calico's kinds that refer to one node, with the consequence if the node gets another name.
func named() []struct {
	kind  string
	field []string // with the node's name; nil if the object's own name contains it, after "node."
	loss  string
} {
	return []struct {
		kind  string
		field []string
		loss  string
	}{
		{"HostEndpoint", []string{"spec", "node"}, "no policy protects the new node"},
		{"FelixConfiguration", nil, "the new node's Felix runs without these settings"},
		{"BGPConfiguration", nil, "the new node's BIRD runs without these settings"},
		{"BGPPeer", []string{"spec", "node"}, "the new node does not have this peering"},
		{"CalicoNodeStatus", []string{"spec", "node"}, "the new node's status is not reported"},
	}
}

func nodeNamed(pass *check.Pass) []finding.Finding {
	replaced := pass.Replaced()
	var found []finding.Finding
	for _, one := range named() {
		for _, object := range pass.Snapshot.Calico(one.kind) {
			node := nodeOf(object, one.field)
			if !replaced[node] || object.GetLabels()[createdBy] != "" {
				continue // Calico creates it for the new node too
			}
			found = append(found, finding.Finding{
				ID: nodeNamedID, Severity: finding.Warn,
				Subject: finding.Subject{Kind: object.GetKind(), Name: object.GetName()},
				Message: fmt.Sprintf("it names the node %s, which is replaced: unless the new node has the "+
					"same name, %s", node, one.loss),
				Evidence: map[string]any{"node": node},
				Fix: fmt.Sprintf("create it for the new node's name; its present form: kubectl get %s -o yaml",
					shell.Words(plural(object.GetKind())+"."+object.GroupVersionKind().Group, object.GetName())),
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

// staticVolumes reports volumes on a disk of a node that is replaced.
func staticVolumes(pass *check.Pass, replaced map[string]bool) []finding.Finding {
	var found []finding.Finding
	for _, object := range pass.Snapshot.OtherOf("", "PersistentVolume") {
		var volume corev1.PersistentVolume
		if decode(object.Object, &volume) != nil || volume.Spec.Local == nil || volume.Spec.NodeAffinity == nil ||
			volume.Spec.NodeAffinity.Required == nil {
			continue
		}
		for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				if e.Key != corev1.LabelHostname || len(e.Values) != 1 || !replaced[e.Values[0]] {
					continue
				}
				found = append(found, finding.Finding{
					ID: nodeNamedID, Severity: finding.Block,
					Subject: finding.Subject{Kind: "PersistentVolume", Name: volume.Name},
					Message: fmt.Sprintf("it is a disk of the node %s, which is replaced: its data is lost, and its "+
						"pod cannot be scheduled again", e.Values[0]),
					Evidence: map[string]any{"node": e.Values[0], "path": volume.Spec.Local.Path},
					Fix:      "move the data before the change: add a replica on another node, or copy it",
				})
			}
		}
	}
	return found
}
