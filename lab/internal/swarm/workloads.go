package swarm

import (
	"fmt"
	"strings"
)

// perNamespace is how many Deployments share a namespace.
const perNamespace = 20

// workloads are the documents of a cluster's workloads, and how many pods they have: of each node's, one is a
// DaemonSet's and one a StatefulSet's, and the others are of two Deployments. There is a Service for each Deployment, a
// budget for every second one, and a NetworkPolicy for each node.
func workloads(nodes, pods int) (text string, count int) {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, "---\n"+format+"\n", args...) }
	work := func(kind, namespace, name, more string) {
		add(`apiVersion: apps/v1
kind: %s
metadata: {name: %s, namespace: %s}
spec:
  %s
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      containers: [{name: app, image: "registry.example.org/app:v1.2.3", resources: {requests: {cpu: 50m, memory: 64Mi}}}]`, kind, name, namespace, more)
	}
	for i := range (2*nodes + perNamespace - 1) / perNamespace {
		add("{apiVersion: v1, kind: Namespace, metadata: {name: team-%d}}", i)
	}
	work("DaemonSet", "team-0", "log", "updateStrategy: {type: RollingUpdate}")
	work("StatefulSet", "team-0", "db",
		fmt.Sprintf("replicas: %d\n  podManagementPolicy: Parallel\n  serviceName: db", nodes))
	for i := range 2 * nodes {
		namespace, name := fmt.Sprintf("team-%d", i/perNamespace), fmt.Sprintf("app-%d", i)
		work("Deployment", namespace, name, fmt.Sprintf("replicas: %d", (pods-2)/2))
		add("{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s}, spec: {selector: {app: %[1]s}, "+
			"ports: [{port: 80}]}}", name, namespace)
		if i%2 == 0 {
			add("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: %s, namespace: %s}, spec: "+
				"{maxUnavailable: 1, selector: {matchLabels: {app: %[1]s}}}}", name, namespace)
			add("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: %s, namespace: "+
				"%s}, spec: {podSelector: {matchLabels: {app: %[1]s}}, ingress: [{from: [{podSelector: "+
				"{matchLabels: {app: app-%[3]d}}}]}]}}",
				name, namespace, i+1)
		}
	}
	return b.String(), nodes*2 + 2*nodes*((pods-2)/2)
}
