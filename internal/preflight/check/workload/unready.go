package workload

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed unready.md
var unreadyDoc string

// Unready reports workloads with pods that are not ready before the change.
func Unready() check.Check {
	return check.Check{
		ID:    "workload/unready",
		Title: "Pods are not ready before the change",
		Doc:   unreadyDoc,
		Needs: []string{"deployments", "statefulsets", "daemonsets", "replicasets"},
		Run:   unready,
	}
}

func unready(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for _, w := range pass.Workloads() {
		if w.Ready >= w.Replicas {
			continue
		}
		f := finding.Finding{
			ID: "workload/unready", Severity: finding.Warn, Subject: w.Subject,
			Message: fmt.Sprintf("%d of its %d pods are ready: the change treats this as its normal state, so faults "+
				"of the change cannot be told from earlier ones", w.Ready, w.Replicas),
			Evidence: map[string]any{"ready": w.Ready, "wanted": w.Replicas},
			Fix: fmt.Sprintf("make them ready, or scale down: kubectl -n %s get pods -o wide",
				shell.Word(w.Meta.Namespace)),
		}
		if w.Subject.Kind == "DaemonSet" {
			f.Message = fmt.Sprintf("%d of its %d pods are ready: a rollout does not count pods that are already "+
				"unready against maxUnavailable, so the next one would replace the pods on these nodes together",
				w.Ready, w.Replicas)
			if w.Ready == 0 && cluster.IsSystemNamespace(w.Meta.Namespace) {
				f.Severity = finding.Block
			}
		}
		found = append(found, f)
	}
	return found
}
