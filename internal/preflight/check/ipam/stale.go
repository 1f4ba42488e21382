package ipam

import (
	_ "embed"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed stale_handles.md
var staleHandlesDoc string

const staleID = "ipam/stale-handles"

// StaleHandles reports records of deleted pods and nodes in Calico's IPAM.
func StaleHandles() check.Check {
	return check.Check{
		ID:    staleID,
		Title: "Calico's IPAM has stale handles or affinities",
		Doc:   staleHandlesDoc,
		Needs: []string{"source", "nodes"},
		Lacks: func(pass *check.Pass) string {
			if pass.Source.CNI != "calico" {
				return ""
			}
			for _, resource := range []string{"ipamblocks", "ipamhandles", "blockaffinities"} {
				if why := pass.MissingCalico(resource); why != "" {
					return why
				}
			}
			return ""
		},
		Run: staleHandles,
	}
}

func staleHandles(pass *check.Pass) []finding.Finding {
	if pass.Source.CNI != "calico" {
		return nil
	}
	blocks := map[string]bool{}
	held := map[string]bool{}
	for _, object := range pass.Snapshot.Calico("IPAMBlock") {
		if b, ok := readBlock(&object); ok {
			blocks[b.prefix.String()] = true
			for _, handle := range b.handles {
				held[handle] = true
			}
		}
	}
	var handles, affinities []string
	var group string // the handles', which Calico's API server does not serve
	for _, object := range pass.Snapshot.Calico("IPAMHandle") {
		group = object.GroupVersionKind().Group
		id, _, _ := unstructured.NestedString(object.Object, "spec", "handleID")
		if gone, _, _ := unstructured.NestedBool(object.Object, "spec", "deleted"); id != "" && !gone && !held[id] {
			handles = append(handles, id)
		}
	}
	nodes := map[string]bool{}
	for i := range pass.Snapshot.Nodes {
		nodes[pass.Snapshot.Nodes[i].Name] = true
	}
	for _, object := range pass.Snapshot.Calico("BlockAffinity") {
		node, _, _ := unstructured.NestedString(object.Object, "spec", "node")
		text, _, _ := unstructured.NestedString(object.Object, "spec", "cidr")
		kind, _, _ := unstructured.NestedString(object.Object, "spec", "type")
		switch {
		case kind == "virtual":
		case node != "" && !nodes[node]:
			affinities = append(affinities, text+" of "+node+", a node that does not exist")
		case !blocks[text]:
			affinities = append(affinities, text+" of "+node+", a block that does not exist")
		}
	}
	found := leftOver(handles, "handles hold no address in any block: IPAM's records are inconsistent",
		"check again, since a handle that is just being created looks the same; then delete those "+
			"that are reported both times: kubectl delete "+shell.Word("ipamhandles."+group)+" NAME")
	return append(found, leftOver(affinities,
		"affinities have no block or no node: their ranges are routed to nodes that do not have them, "+
			"or are lost to the pool", released(pass.Snapshot))...)
}

func leftOver(what []string, follows, fix string) []finding.Finding {
	found := stale(what, follows, fix)
	for i := range found {
		found[i].ID = staleID
	}
	return found
}
