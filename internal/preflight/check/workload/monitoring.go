package workload

import (
	_ "embed"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed monitoring.md
var monitoringDoc string

// Monitoring reports workloads that monitor the cluster over the network that is changed.
func Monitoring() check.Check {
	return check.Check{
		ID:    "workload/monitoring",
		Title: "Monitoring depends on the network that is changed",
		Doc:   monitoringDoc,
		Needs: []string{"deployments", "statefulsets", "daemonsets", "replicasets"},
		Run:   monitoring,
	}
}

// watchers returns the names of images that measure, collect or alert.
func watchers() []string {
	return []string{"prometheus", "alertmanager", "grafana", "kube-state-metrics", "victoria-metrics", "vmagent",
		"vmsingle", "vmalert", "thanos", "mimir", "loki", "otelcol", "opentelemetry-collector", "telegraf",
		"zabbix-proxy", "blackbox-exporter"}
}

func monitoring(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for _, w := range pass.Workloads() {
		if w.Pods.Spec.HostNetwork || w.Replicas == 0 {
			continue
		}
		if image := watcher(&w.Pods.Spec); image != "" {
			found = append(found, finding.Finding{
				ID: "workload/monitoring", Severity: finding.Warn, Subject: w.Subject,
				Message: "it measures over the network that is changed (" + image +
					"): if that network fails, graphs stop and alerts do not fire",
				Evidence: map[string]any{"image": image},
				Fix: "have one alarm outside of the cluster, such as a probe of the public address; " +
					"Theseus' own probes report over the nodes' network and the API server",
			})
		}
	}
	return found
}

func watcher(spec *corev1.PodSpec) string {
	for i := range spec.Containers {
		name := cluster.ImageOf(spec.Containers[i].Image).Base
		if slices.ContainsFunc(watchers(),
			func(known string) bool { return name == known || strings.HasPrefix(name, known+"-") }) {
			return name
		}
	}
	return ""
}
