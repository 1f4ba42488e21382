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

// SingleReplica reports workloads that are unavailable while their one pod is recreated.
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
			Message: "it has one replica: from its eviction until its replacement is ready, no pod answers",
			Fix: fmt.Sprintf("if it can run twice: kubectl -n %s scale %s %s --replicas=2",
				shell.Word(w.Meta.Namespace), strings.ToLower(w.Subject.Kind), shell.Word(w.Meta.Name)),
		})
	}
	return found
}
