package guard

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// hostPortsTaken says why probe pods cannot have ports of their nodes: a pod has one of them, as a hostPort or on its
// node's own network. A kubelet would reject the probe pod, or its port would take another program's traffic. What
// listens on a node without being a pod is not seen. Empty if nothing is known against it.
func hostPortsTaken(snapshot *cluster.Snapshot) string {
	if has, why := snapshot.Has("pods"); !has {
		return "the pods were not read: " + why
	}
	const first, second = manifest.PortTCP + manifest.HostPortOffset,
		manifest.PortTCP + manifest.HostPortOffset + manifest.SecondOffset
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, port := range container.Ports {
				number := port.HostPort
				if pod.Spec.HostNetwork {
					number = port.ContainerPort
				}
				if number == first || number == second {
					return fmt.Sprintf("%s/%s has the port %d of its node", pod.Namespace, pod.Name, number)
				}
			}
		}
	}
	return ""
}

// nodeLocalDNS is the name of Kubernetes' add-on, and localIP the argument with the addresses that it listens on.
const nodeLocalDNS, localIP = "node-local-dns", "localip"

// localDNS is the link-local address that Kubernetes' node-local DNS cache listens on; empty if there is none. The
// cache may listen on the address of the Service kube-dns as well: every guard asks that one.
func localDNS(snapshot *cluster.Snapshot) string {
	for i := range snapshot.DaemonSets {
		set := &snapshot.DaemonSets[i]
		if set.Name != nodeLocalDNS {
			continue
		}
		for _, container := range set.Spec.Template.Spec.Containers {
			for _, address := range localIPs(append(container.Command, container.Args...)) {
				if one, err := netip.ParseAddr(address); err == nil && one.IsLinkLocalUnicast() && one.Is4() {
					return one.String()
				}
			}
		}
	}
	return ""
}

// localIPs are the addresses of the argument localip, which is one word or two.
func localIPs(words []string) []string {
	for i, word := range words {
		name, value, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case name != localIP || !strings.HasPrefix(word, "-"):
		case joined:
			return strings.Split(value, ",")
		case i+1 < len(words):
			return strings.Split(words[i+1], ",")
		}
	}
	return nil
}
