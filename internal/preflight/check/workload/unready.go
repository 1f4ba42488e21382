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

// Unready finds workloads that have pods that are not ready before anything is changed.
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
			Message: fmt.Sprintf("%d of its %d pods are ready: the change takes that for its usual state, and what is broken afterwards cannot be told from what was before",
				w.Ready, w.Replicas),
			Evidence: map[string]any{"ready": w.Ready, "wanted": w.Replicas},
			Fix:      fmt.Sprintf("kubectl -n %s get pods -o wide, make them ready or scale down", shell.Word(w.Meta.Namespace)),
		}
		if w.Subject.Kind == "DaemonSet" {
			f.Message = fmt.Sprintf("%d of its %d pods are ready: a roll-out replaces pods that are unready already without counting them "+
				"against maxUnavailable, so its next one would take these nodes together", w.Ready, w.Replicas)
			if w.Ready == 0 && cluster.IsSystemNamespace(w.Meta.Namespace) {
				f.Severity = finding.Block
			}
		}
		found = append(found, f)
	}
	return found
}
