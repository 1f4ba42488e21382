package workload

import (
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/finding"
)

//go:embed single_replica.md
var singleReplicaDoc string

// SingleReplica finds workloads that are away while their one pod is created again.
func SingleReplica() check.Check {
	return check.Check{
		ID:    "workload/single-replica",
		Title: "A workload with one replica is away while its pod is created again",
		Doc:   singleReplicaDoc,
		Needs: []string{"deployments", "statefulsets", "replicasets"},
		Run:   singleReplicas,
	}
}

func singleReplicas(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	add := func(kind string, meta *metav1.ObjectMeta, replicas *int32, spec *corev1.PodSpec) {
		if replicas != nil && *replicas != 1 || spec.HostNetwork {
			return
		}
		found = append(found, finding.Finding{
			ID: "workload/single-replica", Severity: finding.Warn,
			Subject: finding.Subject{Kind: kind, Namespace: meta.Namespace, Name: meta.Name},
			Message: "it has one replica: between its eviction and the moment its replacement is ready, nobody answers",
			Fix:     fmt.Sprintf("kubectl -n %s scale %s %s --replicas=2, if it can run twice", meta.Namespace, strings.ToLower(kind), meta.Name),
		})
	}
	for i := range pass.Snapshot.Deployments {
		o := &pass.Snapshot.Deployments[i]
		add("Deployment", &o.ObjectMeta, o.Spec.Replicas, &o.Spec.Template.Spec)
	}
	for i := range pass.Snapshot.StatefulSets {
		o := &pass.Snapshot.StatefulSets[i]
		add("StatefulSet", &o.ObjectMeta, o.Spec.Replicas, &o.Spec.Template.Spec)
	}
	for i := range pass.Snapshot.ReplicaSets {
		o := &pass.Snapshot.ReplicaSets[i]
		if metav1.GetControllerOf(o) == nil {
			add("ReplicaSet", &o.ObjectMeta, o.Spec.Replicas, &o.Spec.Template.Spec)
		}
	}
	return found
}
