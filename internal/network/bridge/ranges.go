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

// smallestMTU is the smallest MTU of pods on any node: that of the bridge, or in the configuration; 0 if unknown.
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
