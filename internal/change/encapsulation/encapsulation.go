// Package encapsulation is the strategy that changes how the network in place carries packets between nodes: through
// its tunnel, without one, or through it only to nodes of other subnets. Its agents take their routes away and make
// others, each at its own time, and ends of tunnels come and go. So packets go straight to the nodes meanwhile, by pins
// of Theseus' own: node by node before the network changes, which proves that what lies between the nodes carries them,
// and until every node has all the new routes, and so every tunnel its other end.
//
// The package is pure: it turns what was seen and what is wanted into steps.
package encapsulation

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how plans name the strategy.
const Name = "encapsulation"

// Setup says what changes.
type Setup struct {
	// Pool is the object that says it, Set and Restore are merge patches of it, and From and To name what it says.
	Pool         step.Ref
	Set, Restore json.RawMessage
	From, To     string
	// Old and New are the ways of packets before and after.
	Old, New step.Way
	// Pin is what pins ask for, but for the way.
	Pin step.PinArgs
	// Reserve keeps the addresses of the nodes' tunnels from pods, where those end; nil where they stay.
	Reserve *unstructured.Unstructured
}

// Steps makes the whole procedure. Source and target of in are one network.
func Steps(in joint.Input, setup Setup) []step.Step {
	b := &builder{joint.New(in), setup}
	b.Prepare()
	b.accept()
	for i, wave := range b.Waves {
		b.pinWave(wave, i == len(b.Waves)-1)
	}
	b.change()
	for i, wave := range b.Waves {
		b.followWave(wave, i == len(b.Waves)-1)
	}
	b.unpin()
	b.End([]string{"old"}, []string{"old", "new"})
	return b.Steps
}

type builder struct {
	*joint.Builder
	Setup
}

// args are those of a verb that asks for a way, or for none.
func (b *builder) args(way step.Way) step.PinArgs {
	args := b.Pin
	args.Way = way
	return args
}

func (b *builder) pin(node string) step.Action {
	return joint.OnNode(node, step.VerbPin, "send the outgoing traffic of "+node+" directly to the other nodes",
		b.args(""))
}

func (b *builder) unpinned(way step.Way, words string) func(node string) step.Action {
	return func(node string) step.Action {
		return joint.OnNode(node, step.VerbUnpin, "return the outgoing traffic of "+node+" to the routes of "+
			b.SourceName()+" "+words, b.args(way))
	}
}

func (b *builder) await(way step.Way, words string) []step.Action {
	return joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.OnNode(node, step.VerbRouted, "wait until "+node+" has all routes of "+
			b.SourceName()+" "+words, b.args(way))
	})
}

// words say how packets go.
func words(encapsulation string) string {
	if encapsulation == "none" {
		return "without encapsulation"
	}
	return "with " + encapsulation
}

// accept lets a node's packets and the answers to them go different ways.
func (b *builder) accept() {
	b.Add(step.Step{
		Group: "pin", Does: "join",
		Title: "Accept packets over any path on every node",
		Why: "While nodes change one after another, a packet can arrive through the tunnel and its reply leave " +
			"without it, or the reverse. A strict rp_filter would drop it.",
		Actions: joint.OnEach(b.Nodes(), func(node string) step.Action {
			return joint.OnNode(node, step.VerbJoin, "accept packets over any path on "+node, b.Join)
		}),
		Undo: joint.OnEach(b.Nodes(), b.filter),
		Gate: b.Gate("traffic is unaffected by the relaxed rp_filter", false),
	})
}

func (b *builder) filter(node string) step.Action {
	return joint.OnNode(node, step.VerbPart, "restore the rp_filter of "+node, b.Join)
}

// pinWave is where the packets of a node first go without the tunnel, if they went through one.
func (b *builder) pinWave(wave joint.Wave, last bool) {
	actions := joint.OnEach(wave.Nodes, b.pin)
	undo := joint.OnEach(wave.Nodes, b.unpinned(b.Old, words(b.From)))
	if last {
		actions, undo = append(actions, b.measureAnew()...), append(undo, b.measureAnew()...)
	}
	b.Add(step.Step{
		ID: "pin/" + wave.Name, Group: "pin", Does: "pin",
		Title: "Send the outgoing traffic of " + joint.List(wave.Nodes) + " directly to the other nodes",
		Why: "This step shows, on these nodes first, whether the network between the nodes carries pod addresses. " +
			"From here on, these nodes do not depend on the routes of " + b.SourceName() + ".",
		Wave: wave.Name, Actions: actions, Undo: undo,
		Gate: b.Gate("pod traffic reaches the other nodes directly from "+joint.ListOrAll(wave.Nodes, last), true),
	})
}

// change is when nothing depends on the network's own routes.
func (b *builder) change() {
	again := joint.OnEach(b.Nodes(), func(node string) step.Action {
		action, args := b.pin(node), b.args("")
		action.Title = "renew the pins of " + node + " for routes added in the meantime"
		if args.Linger = b.Reserve != nil; args.Linger {
			action.Title += ", and keep its tunnel address for existing connections"
		}
		step.Edit(&action, func(do *step.Node) { do.Args = joint.Canonical(args) })
		return action
	})
	var actions []step.Action
	if b.Reserve != nil {
		reserve := joint.Apply(*b.Reserve)
		reserve.Title = "create " + joint.Name(step.RefOf(b.Reserve)) +
			", so that no pod gets a tunnel address that connections still use"
		actions = append(actions, reserve)
	}
	patch := func(patch json.RawMessage, title string) step.Action {
		return step.Action{Do: step.Patch{Ref: b.Pool, Merge: patch}, Title: title}
	}
	b.Add(step.Step{
		Group: "encapsulation", Does: "pool",
		Title: "Change the encapsulation of " + joint.Name(b.Pool) + " from " + b.From + " to " + b.To,
		Why: "Each agent of " + b.SourceName() + " removes its old routes and installs new ones at its own time. The " +
			"pins carry all packets until every node has all new routes and tunnels.",
		Before: []step.Condition{{Is: step.NodesAmong{Nodes: b.Nodes()}}},
		Actions: slices.Concat(actions, again,
			[]step.Action{patch(b.Set, "set the encapsulation of "+joint.Name(b.Pool)+" to "+b.To)},
			b.await(b.New, words(b.To))),
		Undo: append([]step.Action{patch(b.Restore, "set the encapsulation of "+joint.Name(b.Pool)+" to "+b.From+
			" again")}, b.await(b.Old, words(b.From))...),
		Gate: b.Gate("traffic is unaffected by the routes of "+b.SourceName()+" "+words(b.To), true),
	})
}

// followWave flips the packets of nodes to the new routes; the ways there and back may differ. Connections that the
// nodes begin themselves keep to the nodes' own addresses, as long as the tunnel may have to go again.
func (b *builder) followWave(wave joint.Wave, last bool) {
	actions := joint.OnEach(wave.Nodes, func(node string) step.Action {
		return joint.OnNode(node, step.VerbFollow, "send the outgoing traffic of "+node+" over the routes of "+
			b.SourceName()+" "+words(b.To), b.args(b.New))
	})
	undo := joint.OnEach(wave.Nodes, b.pin)
	if last {
		actions, undo = append(actions, b.measureAnew()...), append(undo, b.measureAnew()...)
	}
	b.Add(step.Step{
		ID: "follow/" + wave.Name, Group: "follow", Does: "follow",
		Title: "Send the outgoing traffic of " + joint.List(wave.Nodes) + " over the routes of " +
			b.SourceName() + " " + words(b.To),
		Why: "All new routes of these nodes are in place, so the pins can point to them. Connections that a node " +
			"opens itself still use its own address, not its tunnel's.",
		Wave: wave.Name, Actions: actions, Undo: undo,
		Gate: b.Gate("traffic from "+joint.ListOrAll(wave.Nodes, last)+" arrives "+words(b.To), true),
	})
}

// measureAnew begins all measured paths again: a host that began to talk to a pod before goes on with the address that
// it had for it, and a new connection gets another.
func (b *builder) measureAnew() []step.Action {
	return []step.Action{
		joint.Probe("stop measuring", step.PathSet{}),
		joint.Probe("measure again, over new connections", step.PathSet{Old: joint.Every()}),
	}
}

// unpin is the point of no return: from here on nodes begin connections from the addresses of their tunnels.
func (b *builder) unpin() {
	actions := joint.OnEach(b.Nodes(), b.unpinned(b.New, words(b.To)))
	actions = append(actions, b.measureAnew()...)
	actions = append(actions, joint.OnEach(b.Nodes(), b.filter)...)
	b.Add(step.Step{
		Group: "unpin", Does: "all", Title: "Remove the pins",
		Why:     "Without the pins, packets take the same routes, and the same path in both directions.",
		Actions: actions, NoReturn: true,
		Gate: b.Gate("traffic is unaffected without the pins", true),
	})
}
