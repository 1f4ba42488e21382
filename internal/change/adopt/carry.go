package adopt

import (
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// verify makes sure on every node, with its own eyes, that nothing is left on the source: carrying the range
// cuts off whatever is.
func (b *builder) verify() {
	actions := joint.OnEach(b.Nodes(), func(node string) step.Action {
		return b.to(node, "make sure that no pod of "+node+" is on "+b.Source.CNI, len(b.Nodes()), nil, nil)
	})
	b.Add(step.Step{
		Group: "verify", Does: "adopted",
		Title: "Check that no pod of any node is left on " + b.Source.CNI,
		Why: "The next step lets " + b.TargetName() + " carry the whole range; its agent then takes the route to the bridge of " + b.Source.CNI +
			" away, and with it every pod that is still there.",
		Actions: actions,
		Gate:    b.Gate("every pod is on "+b.TargetName()+" and nothing was lost", true),
	})
}

// carry lets the target make its routes while the source's go on to serve: the ends of its tunnels come up one
// after the other, and a node that sends before the other end is there loses what it sends.
func (b *builder) carry() {
	for i := range b.Target.Adoption.Carry {
		b.carryRange(i, i == len(b.Target.Adoption.Carry)-1)
	}
	for i, wave := range b.Waves {
		b.yield(wave, i == len(b.Waves)-1)
	}
}

// carryRange lets the target carry one range, with a gate before the next: agents may pass over a change that they are told of
// while they still see to the one before.
func (b *builder) carryRange(i int, last bool) {
	hold := b.hold()
	does, title := "range", "Let "+b.TargetName()+" make its routes between nodes"
	why := "Until now " + b.Source.CNI + " carries the range between nodes, for pods of both, and goes on to: a pin holds what leaves a node to its routes " +
		"until every node has those of " + b.TargetName() + "."
	var actions []step.Action
	undo := []step.Action{b.Target.Adoption.Drop[i]}
	if i == 0 {
		actions = joint.OnEach(b.Nodes(), func(node string) step.Action {
			return joint.OnNode(node, step.VerbHold, "pin what leaves "+node+" to the routes of "+b.Source.CNI, hold)
		})
		undo = slices.Concat(undo, joint.OnEach(b.Nodes(), func(node string) step.Action {
			return joint.OnNode(node, step.VerbUnhold, "let the routes of "+b.Source.CNI+" on "+node+" be as they were", hold)
		}), b.measureAnew())
	} else {
		does, title = fmt.Sprintf("range-%d", i+1), "Let "+b.TargetName()+" make its routes to "+b.Source.PodCIDRs[i]+", too"
		why = "One range after the other: agents that still see to one may miss the next."
	}
	actions = append(actions, b.Target.Adoption.Carry[i])
	if last {
		actions = append(actions, joint.OnEach(b.Nodes(), func(node string) step.Action {
			return joint.OnNode(node, step.VerbCarried, "wait until "+b.TargetName()+" could carry what leaves "+node, hold)
		})...)
	}
	b.Add(step.Step{
		Group: "carry", Does: does,
		Title:   title,
		Why:     why,
		Before:  []step.Condition{joint.Rolled(b.Target.Installation.Agent)},
		Actions: actions,
		Undo:    undo,
		Gate:    b.Gate("nobody noticed the routes of "+b.TargetName(), false),
	})
}

// yield flips the routes of nodes, each in one step; the ways there and back may differ, as before.
func (b *builder) yield(wave joint.Wave, last bool) {
	hold := b.hold()
	actions := joint.OnEach(wave.Nodes, func(node string) step.Action {
		return joint.OnNode(node, step.VerbYield, "send what leaves "+node+" by "+b.TargetName(), hold)
	})
	undo := joint.OnEach(wave.Nodes, func(node string) step.Action {
		return joint.OnNode(node, step.VerbHold, "send what leaves "+node+" by "+b.Source.CNI+" again", hold)
	})
	if last {
		actions = append(actions, b.measureAnew()...)
	}
	b.Add(step.Step{
		ID: "carry/" + wave.Name, Group: "carry", Does: "yield",
		Title:   "Let " + b.TargetName() + " carry what leaves " + joint.List(wave.Nodes),
		Why:     "The pin is one rule, and goes in one step.",
		Wave:    wave.Name,
		Actions: actions,
		Undo:    undo,
		Gate:    b.Gate(joint.ListOrAll(wave.Nodes, last)+" reach the others over "+b.TargetName(), last),
	})
}

// measureAnew begins all measured paths anew: a host that began to talk to a pod before has an address of an
// interface for it that is about to go.
func (b *builder) measureAnew() []step.Action {
	return []step.Action{
		joint.Probe("stop measuring the pods that "+b.Source.CNI+" made", step.PathSet{New: joint.Every()}),
		joint.Probe("measure them anew, and the others not", step.PathSet{Old: joint.Every()}),
		joint.Probe("measure both again", step.PathSet{Old: joint.Every(), New: joint.Every()}),
	}
}

// deleteSource is the point of no return.
func (b *builder) deleteSource() {
	var actions []step.Action
	if b.source.Asks {
		actions = joint.OnEach(b.Nodes(), b.settleNode)
	}
	actions = append(actions, joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.OnNode(node, step.VerbInventory, "take stock of what "+b.Source.CNI+" left on "+node, b.SourceResidue)
	})...)
	actions = append(actions, b.RemoveParts()...)
	actions = append(actions, b.WaitSourceGone()...)
	b.Add(step.Step{
		Group: "remove", Does: "source",
		Title:    "Remove " + b.Source.CNI,
		Why:      "It carries nothing any more.",
		Before:   []step.Condition{joint.Rolled(b.Target.Installation.Agent)},
		Actions:  actions,
		After:    b.SourceGone(),
		Gate:     b.Gate("nothing misses "+b.Source.CNI, true),
		NoReturn: true,
	})
}

// settleNode gives back what the source still holds for pods, before its own plugin and files go.
func (b *builder) settleNode(node string) step.Action {
	return joint.OnNode(node, step.VerbSettle, "let "+b.Source.CNI+" give back the addresses that it kept on "+node,
		step.SettleArgs{Network: b.source, Links: b.Source.Capabilities.HostLinks})
}

// openRange lets the target give addresses everywhere: nothing is left that it might collide with.
func (b *builder) openRange() {
	later := "nodes that come later get theirs too"
	if b.exact() {
		later = "as it is no more than the ranges of the nodes that are there, nodes that come later borrow of theirs until there is another pool"
	}
	labels := joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.Label(node, v1alpha1.LabelAdopted, nil, "remove the label "+v1alpha1.LabelAdopted+" from "+node)
	})
	b.Add(step.Step{
		Group: "finish", Does: "range",
		Title:   "Give the range to " + b.TargetName() + " for good",
		Why:     "Nothing is left of " + b.Source.CNI + " that could have an address of it; " + later + ".",
		Before:  b.SourceGone(),
		Actions: slices.Concat(b.Target.Adoption.Settle, labels),
		Gate:    b.Gate("nobody noticed", false),
	})
}
