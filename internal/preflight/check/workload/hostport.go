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

// HostPort reports pods that use a port of their node, which the network provides.
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
			Message: fmt.Sprintf("its pods use the node port %s (hostPort): the port is closed until the new "+
				"pod on that node is ready, and stays closed if the target's configuration lacks the plugin portmap",
				list),
			Evidence: map[string]any{"ports": ports, "pod": pod.Name},
			Fix: "check that the target's CNI configuration has \"type\": \"portmap\"; if users cannot wait, " +
				"put a Service in front of it",
		}
		switch {
		case pass.Target != nil && pass.Target.Capabilities.NoHostPorts:
			f.Severity = finding.Block
			f.Message = fmt.Sprintf("its pods use the node port %s (hostPort): %s as in your manifest opens none, so "+
				"the port stays closed after the change",
				list, pass.Target.Title())
			f.Fix = "let its pods use the node's network (hostNetwork: true), or direct clients to a Service of type " +
				"NodePort or LoadBalancer, before the change"
		case pass.Recreates(pod) && leaves(pass, pod.Spec.NodeName):
			f.Message = fmt.Sprintf("its pods use the node port %s (hostPort), and their nodes are replaced: "+
				"afterwards the port is on the addresses of other nodes, and closed there if the target's "+
				"configuration lacks the plugin portmap", list)
			f.Fix = "direct clients to the new nodes, or put a Service in front of it"
		case !pass.Recreates(pod):
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("its pods use the node port %s (hostPort), which is adopted with them; if the "+
				"target's configuration lacks the plugin portmap, they are not adopted", list)
			f.Fix = "check that the target's CNI configuration has \"type\": \"portmap\""
		}
		found = append(found, f)
	}
	return found
}

// portsOf returns a pod's host ports, sorted, as text.
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
