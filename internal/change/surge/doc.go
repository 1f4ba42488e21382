// Package surge is the strategy that replaces nodes instead of changing them. The target is started next to the source
// on every node, as for every change with two joined networks. Then, wave by wave, the user's commands add new nodes,
// on which only the target serves pods. Probes prove these nodes before a pod of the user may be scheduled there.
// Theseus drains the old nodes within the PodDisruptionBudgets, and the user's commands remove them. At the end,
// Theseus switches the nodes that are not replaced, as recreate does.
//
// The source's agent runs on new nodes too, as long as both networks are joined: without it, their pods would not
// reach those of the nodes that are not removed yet.
//
// The package is pure: it turns observations and a requested change into steps.
package surge

import (
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how users name the strategy.
const Name = "surge"

// DefaultHook bounds a hook, and the time until its node has come or gone.
const DefaultHook = 15 * time.Minute

// Wave is a set of nodes that go, and the slots of those that come in their place.
type Wave struct {
	Name     string
	Old, New []string
}

// Hooks are the user's commands.
type Hooks struct {
	Add, Remove []string
	Timeout     time.Duration
}

// Steps makes the whole procedure. The waves of in are those of the nodes that go, then those of the nodes that stay.
func Steps(in joint.Input, waves []Wave, hooks Hooks) []step.Step {
	b := &builder{Builder: joint.New(in), hooks: hooks}
	kept := in.Waves[len(waves):]
	b.Prepare()
	b.Bring()
	b.KeepOff()
	for i, wave := range waves {
		b.add(wave)
		b.open(wave)
		for j, nodes := range b.Groups(wave.Old) {
			b.drain(wave, nodes, j == 0)
		}
		b.empty(wave)
		b.remove(wave, i == 0)
	}
	var standing []joint.Wave
	for _, wave := range waves {
		standing = append(standing, joint.Wave{Name: wave.Name, Nodes: wave.New})
		b.Slots = append(b.Slots, wave.New...)
	}
	var switched []string
	for _, wave := range kept {
		switched = append(switched, wave.Nodes...)
	}
	b.Stand(kept)
	b.SwitchNodes(kept)
	b.Stand(slices.Concat(standing, kept))
	moved := &b.Steps[len(b.Steps)-1]
	moved.After = []step.Condition{{Is: step.NoPods{CIDRs: b.Join.Old}}, {Is: step.NodesAmong{Nodes: b.Nodes()}}}
	b.DeleteSource(switched, false)
	b.CleanSource()
	b.Finish("new")
	last := slices.IndexFunc(b.Steps, func(s step.Step) bool { return s.NoReturn })
	for i := range b.Steps[last:] {
		b.Steps[last+i].Undo = nil // nothing is taken back any more
	}
	return b.Steps
}

type builder struct {
	*joint.Builder
	hooks Hooks
}

func (b *builder) hook(verb string, wave Wave, node string) step.Action {
	command, title := b.hooks.Add, fmt.Sprintf("add node %s: run %q", node, b.hooks.Add)
	if verb == step.VerbRemove {
		command, title = b.hooks.Remove, fmt.Sprintf("remove node %s: run %q", node, b.hooks.Remove)
	}
	return step.Action{Do: step.Hook{Verb: verb, NodeName: node,
		Args: joint.Canonical(step.HookArgs{Command: command, Wave: wave.Name})}, Title: title,
		Timeout: step.Duration(b.hooks.Timeout)}
}

// hooked makes a hook for each node, one after another: which node has come is told by what was there before.
func (b *builder) hooked(verb string, wave Wave, nodes []string) []step.Action {
	var actions []step.Action
	for _, node := range nodes {
		actions = append(actions, b.hook(verb, wave, node))
	}
	return actions
}
