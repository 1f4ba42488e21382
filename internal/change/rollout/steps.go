package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// prepare installs Theseus' own parts, proves that measuring works, and that every node is as it should be.
func (b *builder) prepare() {
	b.add(step.Step{
		Group: "prepare", Does: "theseus", Title: "Install Theseus' agent on every node",
		Why:     "Everything that is done on a node is done by its agent, which does not use the pod network.",
		Actions: b.Install,
		Undo:    joint.Leave(b.Install),
	})
	b.startProbes()
	var actions []step.Action
	for _, node := range b.all {
		turn := b.Flag.Turns[node]
		actions = append(actions, b.prove(node, turn.From, turn.Said))
	}
	title, why := "Prove that every node's rules are in "+b.before(), "A node whose rules are not complete now could not be told from one that the change broke."
	var before []step.Condition
	if b.Flag.Anew {
		title = "Prove that every node's agent says what it runs with, and that this is what is written"
		why = "An agent that runs with something else, or does not say, could not be told from one that the change broke."
		before = append(before, joint.Rolled(b.Network.Agent))
	}
	b.add(step.Step{
		Group: "prepare", Does: "proof", Title: title, Why: why,
		Before:  before,
		Actions: actions,
	})
	if spare := joint.SparePort(b.all, joint.Unused(*b.Network)); spare != nil {
		spare.Gate = b.gate("nothing noticed", false)
		b.add(*spare)
	}
}

// before names the data planes that nodes' rules are in before.
func (b *builder) before() string {
	planes := map[string]bool{}
	for _, turn := range b.Flag.Turns {
		planes[turn.From] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(planes)), " or ")
}

// shared are the objects that measuring needs besides the probe pods.
func (b *builder) shared() []unstructured.Unstructured {
	return joint.Shared(b.Change.AgentImage, b.refuses())
}

func (b *builder) startProbes() {
	actions := joint.ApplyShared(b.shared(), 2*time.Minute+time.Duration(len(b.all))*time.Second)
	for _, node := range b.all {
		actions = append(actions, joint.Apply(*manifest.ProbePod(b.Change.AgentImage, node, "old")))
	}
	for _, node := range b.all {
		actions = append(actions, joint.Wait("wait until the probe pod of "+node+" is ready", joint.ProbePodReady(node, "old"), 2*time.Minute+time.Duration(len(b.all))*time.Second))
	}
	actions = append(actions, joint.Probe("measure the paths between all nodes", step.PathSet{Old: joint.Every()}))
	gate := b.gate("measuring works, and nothing is lost before anything is changed", false)
	gate.Baseline = true
	b.add(step.Step{
		Group: "prepare", Does: "probes", Title: "Measure the network as it is",
		Why:     "What was lost can only be told by comparison, and a gate without evidence never passes.",
		Actions: actions,
		Undo:    b.endProbes(),
		Gate:    gate,
	})
}

func (b *builder) endProbes() []step.Action {
	actions := []step.Action{joint.Probe("stop measuring", step.PathSet{})}
	for _, node := range b.all {
		actions = append(actions, joint.Remove(joint.ProbePod(node, "old")))
	}
	return append(actions, joint.Backwards(b.shared())...)
}

// switchNode gives one node the flag, under a guard, and proves it there.
func (b *builder) switchNode(wave joint.Wave, node string, inWave int, canary bool) {
	agent := b.Network.Agent
	before := []step.Condition{{Kind: step.NodeReady, Node: node}, b.running(node)}
	if inWave == 0 {
		before = append(before, b.frozen())
	}
	turn := b.Flag.Turns[node]
	why := "The agent of this node alone restarts with the new value; its rules stay meanwhile."
	if turn.Moves() {
		why = "The agent of this node alone restarts with the new value; its old rules stay until the new ones are there, " +
			"and a copy of them denies what they deny in between."
	}
	var edit, back []step.Action
	if t := b.Flag.Template; t != nil {
		why = "The agent's pod is made anew with the new value; routes and rules of the node's pods stay meanwhile."
		edit, back = []step.Action{t.New, joint.Restart(agent, node)}, []step.Action{t.Old, joint.Restart(agent, node)}
	} else {
		edit = []step.Action{b.own(node, turn.Own, "set "+b.Flag.Field+"="+turn.Value+" for "+node)}
		back = []step.Action{b.own(node, turn.Was, "take "+b.Flag.Field+" back on "+node)}
	}
	if b.Flag.Anew {
		why = "The agent's pod is made anew and takes the new value; what it wrote into the kernel is to carry the node's pods meanwhile, which the gate watches."
		anew := joint.Restart(agent, node)
		anew.Anew = true
		edit, back = append(edit, anew), append(back, anew)
	}
	actions := b.change(node, edit, turn, turn.To, turn.Says)
	if turn.To != "" { // else what its agent says is the proof
		actions = append(actions, b.prove(node, turn.To, turn.Says))
	}
	b.add(step.Step{
		ID: wave.Name + "/" + node + "/switch", Group: wave.Name, Does: "switch", Title: "Switch " + node + " to " + b.Flag.after(turn), Why: why,
		Wave: wave.Name, Node: node, Before: before,
		Actions: actions,
		Undo:    b.change(node, back, turn, turn.From, turn.Said),

		Alone: !canary, // of the canary nothing is to stay; from then on the nodes that are proven do
		Gate:  b.gate(node+" in "+b.Flag.after(turn)+" loses and leaks no more than the others", true),
	})
}

// change gives a node a value, or takes it, and waits until its agent has done what follows: rules in a data plane, under
// a guard while they move there, or a word in its log.
func (b *builder) change(node string, edit []step.Action, turn Turn, plane, says string) []step.Action {
	if turn.Moves() {
		return []step.Action{
			guard(node, step.VerbGuard, "keep denied what policy denies while the rules are written anew on "),
			edit[0],
			written(node, plane),
			b.ready(node),
			guard(node, step.VerbRelease, "leave policy to the agent again on "),
		}
	}
	edit = append(edit, b.heard(node, says, switchFor))
	if plane != "" {
		edit = append(edit, written(node, plane))
	}
	return append(edit, b.ready(node))
}

func (b *builder) ready(node string) step.Action {
	return joint.Wait("wait until the agent of "+node+" is ready", b.running(node), 3*time.Minute)
}

// hold keeps the DaemonSet's controller from replacing pods, so that each node's comes when it is the node's turn.
func (b *builder) hold() {
	b.add(step.Step{
		Group: "prepare", Does: "hold", Title: "Let " + joint.Name(b.Network.Agent) + " replace no pod by itself",
		Why:     "The flag is in what all its pods are made from. Its controller knows neither waves nor gates.",
		Before:  []step.Condition{joint.Rolled(b.Network.Agent)},
		Actions: []step.Action{b.Flag.Template.Hold},
		Undo:    []step.Action{b.Flag.Template.Unhold},
	})
}

// unhold lets it again, when all pods are made from the same.
func (b *builder) unhold() {
	b.add(step.Step{
		Group: "fold", Does: "strategy", Title: "Let " + joint.Name(b.Network.Agent) + " replace pods by itself again",
		Why:     "All its pods have the value already, so it replaces none.",
		Before:  []step.Condition{joint.Rolled(b.Network.Agent), b.frozen()},
		Actions: []step.Action{b.Flag.Template.Unhold},
		Undo:    []step.Action{b.Flag.Template.Hold},
		Gate:    b.gate("no agent was replaced", true),
	})
}

// frozen demands that the nodes are those of the plan.
func (b *builder) frozen() step.Condition { return step.Condition{Kind: step.NodesAmong, Nodes: b.all} }

// fold makes the value that of the cluster. Nodes have it already, so no agent restarts.
func (b *builder) fold() {
	whole, named := b.Flag.Whole(b.Flag.Value), fmt.Sprintf("%s=%v", b.Flag.Field, b.Flag.Value)
	actions := []step.Action{{Op: step.Apply, Object: &whole, Title: "set " + named + " for the cluster"}}
	var undo []step.Action
	for _, node := range b.all {
		actions = append(actions, b.own(node, nil, "let "+node+" take "+b.Flag.Field+" from the cluster"))
		undo = append(undo, b.own(node, b.Flag.Turns[node].Own, "set "+named+" for "+node))
	}
	for _, node := range b.all {
		turn := b.Flag.Turns[node]
		actions = append(actions, b.prove(node, turn.To, turn.Says))
	}
	undo = append(undo, patch(step.RefOf(&whole), b.Flag.WholePath, b.Flag.Before, "set "+b.Flag.Field+" for the cluster as it was"))
	b.add(step.Step{
		Group: "fold", Does: "default", Title: "Make " + named + " the cluster's value",
		Why:     "New nodes get it from here on, and no node has a value of its own any more. Every node has it already, so nothing restarts.",
		Before:  []step.Condition{b.frozen()},
		Actions: actions,
		Undo:    undo,
		Alone:   true,
		Gate:    b.gate("nothing noticed that the value moved", true),
	})
}

// finish takes Theseus' own parts away.
func (b *builder) finish() {
	leave := joint.Leave(b.Install)
	if b.Network.Capabilities.Untracked != nil {
		leave = append(joint.UseAnyPort(b.all), leave...)
	}
	b.add(step.Step{
		Group: "finish", Does: "probes", Title: "Stop measuring",
		Why:      "What was measured is in the report. Another rollout takes the flag back.",
		Actions:  b.endProbes(),
		NoReturn: true,
	})
	b.add(step.Step{
		Group: "finish", Does: "theseus", Title: "Remove Theseus' agent",
		Why:     "Only the journal stays, in namespace " + v1alpha1.Namespace + ", until somebody deletes it.",
		Actions: leave,
	})
}
