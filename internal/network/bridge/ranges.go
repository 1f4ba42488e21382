package bridge

import (
	"strings"
)

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
