// Package workload checks the effects of a change on workloads, above all on those whose pods are recreated.
package workload

import (
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed bare_pod.md
var barePodDoc string

// BarePod reports pods that no controller would recreate.
func BarePod() check.Check {
	return check.Check{
		ID:    "workload/bare-pod",
		Title: "A pod that no controller recreates",
		Doc:   barePodDoc,
		Needs: []string{"pods"},
		Run:   barePods,
	}
}

func barePods(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Pods {
		pod := &pass.Snapshot.Pods[i]
		if !pass.Recreates(pod) || metav1.GetControllerOfNoCopy(pod) != nil ||
			pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
			continue
		}
		found = append(found, finding.Finding{
			ID: "workload/bare-pod", Severity: finding.Block,
			Subject:  finding.Subject{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
			Message:  "the pod has no controller: an eviction deletes it, and it is not recreated",
			Evidence: map[string]any{"node": pod.Spec.NodeName},
			Fix: fmt.Sprintf("run it in a Deployment, starting from its manifest: kubectl -n %s get pod %s -o yaml",
				shell.Word(pod.Namespace), shell.Word(pod.Name)),
		})
	}
	return found
}
