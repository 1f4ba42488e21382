package adopt

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// flat says that no node has addresses of its own.
func (b *builder) flat() bool { return b.Source.Capabilities.Flat }

// switchAll lets the target serve new pods on all nodes of a flat network. Any node may give any address of the range,
// so the target must know every pod of every node before it gives one anywhere: until then the source serves new pods,
// and this step adopts them.
func (b *builder) switchAll() {
	var actions []step.Action
	for _, wave := range b.Waves {
		actions = append(actions, b.activate(wave.Nodes)...)
	}
	b.Add(step.Step{
		Group: "switch", Does: "all",
		Title: "Use " + b.TargetName() + " for new pods on all nodes",
		Why: "The pods of all nodes share one range. " + b.TargetName() +
			" may not assign an address before it knows every address in use on every node. " +
			"A pod that starts in the meantime waits for a moment.",
		Before: []step.Condition{joint.Rolled(b.Target.Installation.Agent)},
		Actions: slices.Concat(actions, b.open(b.Nodes()), []step.Action{
			joint.Probe("measure the new probe pods on "+b.TargetName()+" as well",
				step.PathSet{Old: joint.Every(), New: joint.Every()})}),
		Undo: slices.Concat([]step.Action{joint.Probe("stop measuring the new probe pods",
			step.PathSet{Old: joint.Every()})},
			b.close(b.Nodes()), b.allBack(b.Nodes()), b.deactivate(b.Nodes())),
		Gate: b.Gate("pods of both networks reach each other on every node", true),
	})
}
