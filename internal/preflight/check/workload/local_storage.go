package workload

import (
	_ "embed"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed local_storage.md
var localStorageDoc string

// LocalStorage reports pods whose data is bound to one node.
func LocalStorage() check.Check {
	return check.Check{
		ID:    "workload/local-storage",
		Title: "A pod's data is bound to one node or is deleted with the pod",
		Doc:   localStorageDoc,
		Needs: []string{"pods", "replicasets", "nodes", "persistentvolumes"},
		Run:   localStorage,
	}
}

func localStorage(pass *check.Pass) []finding.Finding {
	pinned := pinnedClaims(pass)
	cordoned := map[string]bool{}
	for i := range pass.Snapshot.Nodes {
		cordoned[pass.Snapshot.Nodes[i].Name] = pass.Snapshot.Nodes[i].Spec.Unschedulable
	}
	owners := pass.Snapshot.Owners()
	var found []finding.Finding
	seen := map[cluster.Owner]bool{}
	for i := range pass.Snapshot.Pods {
		pod := &pass.Snapshot.Pods[i]
		if len(pod.Spec.Volumes) == 0 || !pass.Recreates(pod) || cluster.IsSystemNamespace(pod.Namespace) {
			continue
		}
		f, some := storageOf(pass, pod, pinned, cordoned[pod.Spec.NodeName])
		if !some {
			continue
		}
		owner := owners(pod)
		if seen[owner] && f.Severity == finding.Info {
			continue
		}
		seen[owner] = true
		f.ID, f.Subject = "workload/local-storage", finding.Subject{Kind: owner.Kind,
			Namespace: owner.Namespace, Name: owner.Name}
		found = append(found, f)
	}
	return found
}

// storageOf reports the worst of one pod's volumes.
func storageOf(pass *check.Pass, pod *corev1.Pod, pinned map[string]string, cordoned bool) (finding.Finding, bool) {
	var empty, host string
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			if pv, ok := pinned[pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName]; ok {
				return onPinned(pass, pod, pv, cordoned), true
			}
		}
		if volume.HostPath != nil {
			host = volume.HostPath.Path
		}
		if volume.EmptyDir != nil && volume.EmptyDir.Medium != corev1.StorageMediumMemory {
			empty = volume.Name
		}
	}
	switch {
	case host != "" && !check.OfDaemonSet(pod):
		return finding.Finding{Severity: finding.Warn,
			Message: fmt.Sprintf("its pod %s uses the folder %s of its node: if recreated on another node, it finds "+
				"that node's files instead of its own", pod.Name, host),
			Evidence: map[string]any{"pod": pod.Name, "path": host, "node": pod.Spec.NodeName},
			Fix: "pin it to its node by a nodeSelector for the duration of the change, or give it a " +
				"volume that moves with it"}, true
	case empty != "":
		return finding.Finding{Severity: finding.Info,
			Message: fmt.Sprintf(
				"its pods keep data in the volume %s (emptyDir), which is deleted when they are recreated", empty),
			Evidence: map[string]any{"pod": pod.Name, "volume": empty},
			Fix:      "nothing, if it is a cache; otherwise give it a persistent volume"}, true
	}
	return finding.Finding{}, false
}

func onPinned(pass *check.Pass, pod *corev1.Pod, pv string, cordoned bool) finding.Finding {
	f := finding.Finding{Severity: finding.Warn,
		Message: fmt.Sprintf("its pod %s has its data on the node %s (volume %s): it can be recreated only there, "+
			"and waits while that node is unschedulable",
			pod.Name, pod.Spec.NodeName, pv),
		Evidence: map[string]any{"pod": pod.Name, "volume": pv, "node": pod.Spec.NodeName},
		Fix:      "keep the node schedulable during the change"}
	switch {
	case pass.Change.Strategy == "mirror" || leaves(pass, pod.Spec.NodeName):
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("its pod %s has its data on the node %s (volume %s), which does not move to another "+
			"cluster or to new nodes", pod.Name, pod.Spec.NodeName, pv)
		f.Fix = "move the data by the application's own means first, or choose the strategy recreate"
	case cordoned:
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("its pod %s has its data on the node %s (volume %s), which is cordoned: once "+
			"evicted, it cannot come back", pod.Name, pod.Spec.NodeName, pv)
		f.Fix = "kubectl uncordon " + shell.Word(pod.Spec.NodeName)
	}
	return f
}

// leaves reports whether a node itself is removed: a replaced one, and with surge every worker unless the change names
// the nodes.
func leaves(pass *check.Pass, name string) bool {
	if pass.Change.Strategy != "surge" || pass.Change.ReplaceNodes != "" {
		return pass.Replaced()[name]
	}
	at := slices.IndexFunc(pass.Snapshot.Nodes, func(node corev1.Node) bool { return node.Name == name })
	return at < 0 || !joint.IsControlPlane(&pass.Snapshot.Nodes[at])
}

// pinnedClaims maps namespace/claim to its volume, for volumes that are bound to a node.
func pinnedClaims(pass *check.Pass) map[string]string {
	pinned := map[string]string{}
	for _, object := range pass.Snapshot.OtherOf("", "PersistentVolume") {
		var pv corev1.PersistentVolume
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pv) != nil || pv.Spec.ClaimRef == nil {
			continue
		}
		if pv.Spec.Local != nil || pv.Spec.HostPath != nil || byHostname(&object) {
			pinned[pv.Spec.ClaimRef.Namespace+"/"+pv.Spec.ClaimRef.Name] = pv.Name
		}
	}
	return pinned
}

// byHostname reports whether a volume is bound to nodes by name, rather than to a zone.
func byHostname(pv *unstructured.Unstructured) bool {
	terms, _, _ := unstructured.NestedSlice(pv.Object, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
	for _, term := range terms {
		fields, _ := term.(map[string]any)
		expressions, _, _ := unstructured.NestedSlice(fields, "matchExpressions")
		for _, expression := range expressions {
			if pair, _ := expression.(map[string]any); pair["key"] == corev1.LabelHostname {
				return true
			}
		}
	}
	return false
}
