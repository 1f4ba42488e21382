package bridge

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func podCIDRs(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return []string{node.Spec.PodCIDR}
	}
	return node.Spec.PodCIDRs
}

func list(cidrs []string) string {
	if len(cidrs) == 0 {
		return "nothing"
	}
	return strings.Join(cidrs, ", ")
}

// smallestMTU is that of the pods on any node: of the bridge, or what the configuration says; 0 where neither tells.
func smallestMTU(nodes []served) int {
	smallest := 0
	note := func(mtu int) {
		if mtu > 0 && (smallest == 0 || mtu < smallest) {
			smallest = mtu
		}
	}
	for _, n := range nodes {
		note(n.conf.MTU)
		for _, link := range n.Links {
			if link.Name == linkOf(n.conf) {
				note(link.MTU)
			}
		}
	}
	return smallest
}
