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
	sideBySide := b.sideBySide(b.Nodes())
	actions := joint.OnEach(b.Nodes(), func(node string) step.Action {
		return b.to(node, "check that no pod of "+node+" is left on "+b.SourceName(), sideBySide, nil, nil)
	})
	b.Add(step.Step{
		Group: "verify", Does: "adopted",
		Title: "Check that no pod is left on " + b.SourceName(),
		Why: "In the next step, " + b.TargetName() +
			" routes the whole range, and its agent removes the route to the bridge of " + b.SourceName() +
			". A pod that is still on that bridge would lose its traffic.",
		Actions: actions,
		Gate:    b.Gate("all pods are on "+b.TargetName(), true),
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

// carryRange lets the target carry one range, with a gate before the next: agents may pass over a change that they are
// told of while they still see to the one before.
func (b *builder) carryRange(i int, last bool) {
	hold := joint.Canonical(b.hold())
	does, title := "range", "Let "+b.TargetName()+" install its routes between nodes"
	why := b.SourceName() + " still carries all pod traffic between nodes. A pin keeps the outgoing traffic of " +
		"every node on those routes until every node has the routes of " + b.TargetName() + "."
	var actions []step.Action
	undo := []step.Action{b.Target.Adoption.Drop[i]}
	if i == 0 {
		actions = joint.OnEach(b.Nodes(), func(node string) step.Action {
			return joint.OnNode(node, step.VerbHold, "pin the outgoing traffic of "+node+
				" to the routes of "+b.SourceName(), hold)
		})
		undo = slices.Concat(undo, joint.OnEach(b.Nodes(), func(node string) step.Action {
			return joint.OnNode(node, step.VerbUnhold, "unpin the outgoing traffic of "+node+
				" from the routes of "+b.SourceName(), hold)
		}), b.measureAnew())
	} else {
		does, title = fmt.Sprintf("range-%d", i+1), "Let "+b.TargetName()+" install its routes to "+b.Source.PodCIDRs[i]
		why = "One range at a time: an agent that is busy with one range may miss the next."
	}
	actions = append(actions, b.Target.Adoption.Carry[i])
	if last {
		actions = append(actions, joint.OnEach(b.Nodes(), func(node string) step.Action {
			return joint.OnNode(node, step.VerbCarried,
				"wait until "+b.TargetName()+" has all its routes on "+node, hold)
		})...)
	}
	b.Add(step.Step{
		Group: "carry", Does: does,
		Title:   title,
		Why:     why,
		Before:  []step.Condition{joint.Rolled(b.Target.Installation.Agent)},
		Actions: actions,
		Undo:    undo,
		Gate:    b.Gate("traffic is unaffected by the routes of "+b.TargetName(), false),
	})
}

// yield flips the routes of nodes, each in one step; the ways there and back may differ, as before.
func (b *builder) yield(wave joint.Wave, last bool) {
	hold := joint.Canonical(b.hold())
	actions := joint.OnEach(wave.Nodes, func(node string) step.Action {
		return joint.OnNode(node, step.VerbYield, "send the outgoing traffic of "+node+" over "+b.TargetName(), hold)
	})
	undo := joint.OnEach(wave.Nodes, func(node string) step.Action {
		return joint.OnNode(node, step.VerbHold, "send the outgoing traffic of "+node+" over "+
			b.SourceName()+" again", hold)
	})
	if last {
		actions = append(actions, b.measureAnew()...)
	}
	b.Add(step.Step{
		ID: "carry/" + wave.Name, Group: "carry", Does: "yield",
		Title:   "Send the outgoing traffic of " + joint.List(wave.Nodes) + " over " + b.TargetName(),
		Why:     "The pin of a node is a single rule, so all its traffic switches at once.",
		Wave:    wave.Name,
		Actions: actions,
		Undo:    undo,
		Gate:    b.Gate("traffic from "+joint.ListOrAll(wave.Nodes, last)+" arrives over "+b.TargetName(), last),
	})
}

// measureAnew begins all measured paths again: a host that began to talk to a pod before has an address of an
// interface for it that is about to go.
func (b *builder) measureAnew() []step.Action {
	return []step.Action{
		joint.Probe("measure only the new probe pods", step.PathSet{New: joint.Every()}),
		joint.Probe("measure only the old probe pods, over new connections", step.PathSet{Old: joint.Every()}),
		joint.Probe("measure all probe pods again", step.PathSet{Old: joint.Every(), New: joint.Every()}),
	}
}

// deleteSource is the point of no return.
func (b *builder) deleteSource() {
	var actions []step.Action
	if b.source.Asks {
		actions = joint.OnEach(b.Nodes(), b.settleNode())
	}
	residue := joint.Canonical(b.SourceResidue)
	actions = append(actions, joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.OnNode(node, step.VerbInventory, "list the residue of "+b.SourceName()+" on "+node,
			residue)
	})...)
	actions = append(actions, b.RemoveParts()...)
	actions = append(actions, b.WaitSourceGone()...)
	b.Add(step.Step{
		Group: "remove", Does: "source",
		Title:    "Remove " + b.SourceName(),
		Why:      "It carries no traffic any more.",
		Before:   []step.Condition{joint.Rolled(b.Target.Installation.Agent)},
		Actions:  actions,
		After:    b.SourceGone(),
		Gate:     b.Gate("traffic is unaffected without "+b.SourceName(), true),
		NoReturn: true,
	})
}

// settleNode gives back what the source still holds for pods of a node, before its own plugin and files go.
func (b *builder) settleNode() func(node string) step.Action {
	args := joint.Canonical(step.SettleArgs{Network: b.source, Links: b.Source.Capabilities.HostLinks})
	return func(node string) step.Action {
		return joint.OnNode(node, step.VerbSettle,
			"make "+b.SourceName()+" release the addresses that it still holds on "+node, args)
	}
}

// openRange lets the target give addresses everywhere: nothing is left that it might collide with.
func (b *builder) openRange() {
	later := "Nodes that join later get addresses from the range too."
	if b.exact() {
		later = "The range holds only the ranges of the present nodes. Nodes that join later borrow " +
			"from them until you add a pool."
	}
	labels := joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.Label(node, v1alpha1.LabelAdopted, nil, "remove the label "+v1alpha1.LabelAdopted+" from "+node)
	})
	b.Add(step.Step{
		Group: "finish", Does: "range",
		Title:   "Let " + b.TargetName() + " assign addresses from the whole range",
		Why:     b.SourceName() + " is gone, so no address can be assigned twice. " + later,
		Before:  b.SourceGone(),
		Actions: slices.Concat(b.Target.Adoption.Settle, labels),
		Gate:    b.Gate("traffic is unaffected by the larger range", false),
	})
}
