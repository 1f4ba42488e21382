// Package adopt is the strategy that moves running pods to the target network: Theseus recreates no pod, and pods keep
// their addresses and connections. The target is installed next to the source, and learns the source's range, but
// assigns no address of it to new pods yet. On each node, or on several nodes of a wave together, Theseus first moves
// the probe pod, whose probes prove the path, then the node's other pods, and then switches the runtime. When no node
// has a pod on the source any more, the target takes over the routes of the range between nodes, and Theseus removes
// the source.
//
// The package is pure: it turns observations and a requested change into steps.
package adopt

import (
	"slices"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how users name the strategy.
const Name = "adopt"

// Steps makes the whole procedure. Both networks must say how pods hang on them, and the target must come with
// an Adoption.
func Steps(in joint.Input) []step.Step {
	// Every route within the range may be one of the target's, to a pod that it took over. What is the source's
	// goes with its interfaces.
	in.SourceResidue.Routes, in.TargetResidue.Routes = nil, nil
	b := &builder{Builder: joint.New(in), source: *in.Source.Capabilities.Attachment,
		target: *in.Target.Installation.Capabilities.Attachment, adopted: adoptedValues(in.Snapshot, *in.Source),
		processors: map[string]int{}}
	for i := range in.Snapshot.Nodes {
		node := &in.Snapshot.Nodes[i]
		b.processors[node.Name] = int(node.Status.Capacity.Cpu().Value())
	}
	if !b.source.Asks {
		b.BeforeClean = b.settleNode()
	}
	b.Join.Keep = in.Source.Capabilities.RoutesBy()
	b.Prepare()
	b.Bring()
	b.rehearse()
	for _, wave := range b.Waves {
		groups := b.Groups(wave.Nodes)
		for i, nodes := range groups {
			b.adoptNodes(wave, nodes, i == len(groups)-1)
		}
	}
	if b.flat() {
		b.switchAll()
	}
	b.verify()
	b.carry()
	b.deleteSource()
	b.CleanSource()
	b.openRange()
	b.Finish("old", "new")
	return b.Steps
}

type builder struct {
	*joint.Builder
	source, target step.Attachment
	// adopted are the values of LabelAdopted by node.
	adopted map[string]string
	// processors are how many a node has; 0 means unknown.
	processors map[string]int
}

// podsOfNode is how many pods of a node are in the middle of their move at a time, and podsAtOnce how many on all nodes
// that are changed together: a move asks the API server many things. A group has at most half as many nodes. What acts
// on all nodes (verify, and the switch of a flat network) may take more: one pod of each.
const podsOfNode, podsAtOnce = 4, 2 * step.MostAtOnce

// sideBySide is how many pods of each of some nodes move at a time: no more than the smallest node has processors, as
// plugins mostly compute.
func (b *builder) sideBySide(nodes []string) int {
	n := min(podsOfNode, max(1, podsAtOnce/len(nodes)))
	for _, node := range nodes {
		if cpus := b.processors[node]; cpus > 0 {
			n = min(n, cpus)
		}
	}
	return n
}

// to moves pods of a node to the target, a few side by side, all of them when none is named.
func (b *builder) to(node, title string, sideBySide int, pods, skip []string) step.Action {
	return joint.OnNode(node, step.VerbAdopt, title,
		step.AdoptArgs{From: b.source, To: b.target, Pods: pods, Skip: skip, Parallel: sideBySide})
}

// back moves them back.
func (b *builder) back(node, title string, sideBySide int, pods, skip []string) step.Action {
	return joint.OnNode(node, step.VerbAdopt, title,
		step.AdoptArgs{From: b.target, To: b.source, Pods: pods, Skip: skip, Release: true, Parallel: sideBySide})
}

// canary is the probe pod of a node that was made on the source.
func canary(node string) string {
	return v1alpha1.Namespace + "/" + joint.ProbePod(node, "old").Name
}

// hold names the ranges, and the interfaces by which either network reaches them.
func (b *builder) hold() step.HoldArgs {
	hold := step.HoldArgs{Within: b.Source.PodCIDRs, Source: b.Source.Capabilities.RoutesBy(),
		Target: b.Target.Installation.Capabilities.HostLinks}
	if b.Source.Capabilities.Encapsulation == "none" && b.exact() {
		hold.Bits, _ = NodeBits(b.Snapshot, *b.Source) // an error is a clash
	}
	if b.flat() {
		hold.Others = len(b.Nodes()) - 1
	}
	return hold
}

// exact says whether the source's ranges are those of the nodes that are there, and nothing besides.
func (b *builder) exact() bool { return slices.Equal(b.Source.PodCIDRs, cni.NodeRanges(b.Snapshot)) }
