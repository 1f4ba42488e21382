package workload

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed single_replica.md
var singleReplicaDoc string

// SingleReplica finds workloads that are away while their one pod is created again.
func SingleReplica() check.Check {
	return check.Check{
		ID:    "workload/single-replica",
		Title: "A workload with one replica is unavailable while its pod is recreated",
		Doc:   singleReplicaDoc,
		Needs: []string{"deployments", "statefulsets", "replicasets"},
		Run:   singleReplicas,
	}
}

func singleReplicas(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for _, w := range pass.RecreatedWorkloads() {
		if w.Subject.Kind == "DaemonSet" || w.Replicas != 1 || w.Pods.Spec.HostNetwork {
			continue
		}
		found = append(found, finding.Finding{
			ID: "workload/single-replica", Severity: finding.Warn, Subject: w.Subject,
			Message: "it has one replica: between its eviction and the moment its replacement is ready, nobody answers",
			Fix:     fmt.Sprintf("kubectl -n %s scale %s %s --replicas=2, if it can run twice", shell.Word(w.Meta.Namespace), strings.ToLower(w.Subject.Kind), shell.Word(w.Meta.Name)),
		})
	}
	return found
}
