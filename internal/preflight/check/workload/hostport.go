package workload

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed host_port.md
var hostPortDoc string

// HostPort finds pods that hold a port of their node through the network.
func HostPort() check.Check {
	return check.Check{
		ID:    "workload/host-port",
		Title: "A pod uses a port of its node, which the network provides",
		Doc:   hostPortDoc,
		Needs: []string{"pods", "replicasets"},
		Run:   hostPorts,
	}
}

func hostPorts(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	seen, owners := map[cluster.Owner]bool{}, pass.Snapshot.Owners()
	for i := range pass.Snapshot.Pods {
		pod := &pass.Snapshot.Pods[i]
		ports := portsOf(pod)
		if len(ports) == 0 || !check.Moves(pod) || pass.InPlace() && !pass.Recreates(pod) {
			continue
		}
		owner := owners(pod)
		if seen[owner] {
			continue
		}
		seen[owner] = true
		list := strings.Join(ports, ", ")
		f := finding.Finding{
			ID: "workload/host-port", Severity: finding.Warn,
			Subject: finding.Subject{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name},
			Message: fmt.Sprintf("its pods hold the node port %s (hostPort): the port is shut until the new pod on that node is ready, "+
				"and stays shut if the target's configuration lacks the plugin portmap", list),
			Evidence: map[string]any{"ports": ports, "pod": pod.Name},
			Fix:      "look for \"type\": \"portmap\" in the target's CNI configuration; where users cannot wait, put a Service before it",
		}
		switch {
		case pass.Recreates(pod) && leaves(pass, pod.Spec.NodeName):
			f.Message = fmt.Sprintf("its pods hold the node port %s (hostPort), and their nodes go: the port is on the addresses of other nodes then, "+
				"and shut there if the target's configuration lacks the plugin portmap", list)
			f.Fix = "let clients find the new nodes, or put a Service before it"
		case !pass.Recreates(pod):
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("its pods hold the node port %s (hostPort), which is taken over with them; where the target's configuration lacks the plugin portmap, they are not adopted", list)
			f.Fix = "look for \"type\": \"portmap\" in the target's CNI configuration"
		}
		found = append(found, f)
	}
	return found
}

// portsOf are a pod's host ports, as text and sorted.
func portsOf(pod *corev1.Pod) []string {
	var ports []int
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.HostPort != 0 {
				ports = append(ports, int(port.HostPort))
			}
		}
	}
	slices.Sort(ports)
	var texts []string
	for _, port := range slices.Compact(ports) {
		texts = append(texts, strconv.Itoa(port))
	}
	return texts
}
