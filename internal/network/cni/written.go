package cni

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// Written is how the agent of a network writes the CNI configuration of each node, with host-local and the node's
// range.
type Written struct {
	Agent string                  // as in "which kindnetd never writes"
	Ours  func(cluster.Conf) bool // whether a configuration is the network's
	// MTU is that of the pods where the configuration does not say it; 0 if it is not known.
	MTU func(*cluster.NodeFacts, *corev1.Node) int
}

// Compare compares the nodes' CNI configurations with what the agent writes, and adds what only they say. Nodes that
// were not inspected count as usual.
func (w Written) Compare(snapshot *cluster.Snapshot, found *Installation) (problems []string) {
	by := map[string]*cluster.NodeFacts{}
	for i := range snapshot.Facts {
		by[snapshot.Facts[i].Node] = &snapshot.Facts[i]
	}
	var data []string
	caps := &found.Capabilities
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		facts := by[node.Name]
		if facts == nil {
			continue
		}
		conf, ok := facts.Serving()
		switch {
		case !ok:
			continue // another check says so
		case !w.Ours(conf) || conf.File != caps.ConfName:
			problems = append(problems, fmt.Sprintf("%s serves new pods on node %s, not %s's own %s",
				conf.File, node.Name, found.CNI, caps.ConfName))
			continue
		case conf.IPMasq:
			problems = append(problems, conf.File+" of node "+node.Name+
				" masquerades each pod with rules of its own (ipMasq), which "+w.Agent+" never writes")
		case !slices.Equal(conf.Subnets, RangesOf(node)):
			problems = append(problems, fmt.Sprintf("%s of node %s gives out %s, and the API says %s (spec.podCIDRs)",
				conf.File, node.Name, cmp.Or(strings.Join(conf.Subnets, ", "), "nothing"),
				strings.Join(RangesOf(node), ", ")))
		}
		mtu := conf.MTU
		if mtu == 0 {
			mtu = w.MTU(facts, node)
		}
		if mtu > 0 && (caps.MTU == 0 || mtu < caps.MTU) {
			caps.MTU = mtu
		}
		for _, plugin := range Chained(conf.Plugins) {
			if !slices.Contains(caps.Chained, plugin) {
				caps.Chained = append(caps.Chained, plugin)
			}
		}
		data = append(data, path.Join(cmp.Or(conf.DataDir, "/var/lib/cni/networks"), conf.Network))
	}
	slices.Sort(data)
	if data = slices.Compact(data); len(data) > 0 {
		found.Data = data
	}
	slices.Sort(caps.Chained)
	return problems
}
