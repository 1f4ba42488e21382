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
		Why:     "Theseus changes nodes only through its agent, which uses the host network.",
		Actions: b.Install,
		Undo:    joint.Leave(b.Install),
	})
	b.startProbes()
	var actions []step.Action
	for _, node := range b.all {
		turn := b.Flag.Turns[node]
		actions = append(actions, b.prove(node, turn.From, turn.Said))
	}
	title, why := "Check that the rules of every node are in "+b.before(),
		"If a node already lacked rules, the change could not be told from the fault."
	var before []step.Condition
	if b.Flag.Always {
		title = "Check that every agent reports its value, and that it matches the configuration"
		why = "If an agent already ran with another value, the change could not be told from the fault."
		before = append(before, joint.Rolled(b.Network.Agent))
	}
	b.add(step.Step{
		Group: "prepare", Does: "proof", Title: title, Why: why,
		Before:  before,
		Actions: actions,
	})
	if spare := joint.SparePort(b.all, joint.Unused(*b.Network)); spare != nil {
		spare.Gate = b.gate("traffic is unaffected by the reserved port", false)
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
	pod := manifest.ProbePods(b.Change.AgentImage, "old")
	for _, node := range b.all {
		actions = append(actions, joint.Apply(*pod(node)))
	}
	for _, node := range b.all {
		actions = append(actions, joint.Wait("wait until the probe pod of "+node+" is ready",
			joint.ProbePodReady(node, "old"), 2*time.Minute+time.Duration(len(b.all))*time.Second))
	}
	actions = append(actions, joint.Probe("measure the paths between all nodes", step.PathSet{Old: joint.Every()}))
	gate := b.gate("the probes work, and none is lost before the change", false)
	gate.Baseline = true
	b.add(step.Step{
		Group: "prepare", Does: "probes", Title: "Measure the network before the change",
		Why: "The measurements are the baseline for the report and for every gate. A gate without " +
			"measurements never passes.",
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
	before := []step.Condition{{Is: step.NodeReady{Node: node}}, b.running(node)}
	if inWave == 0 {
		before = append(before, b.frozen())
	}
	turn := b.Flag.Turns[node]
	why := "Only the agent of this node restarts with the new value. The rules of the node stay in place."
	if turn.Moves() {
		why = "Only the agent of this node restarts with the new value. The old rules stay until " +
			"the new ones are complete, and a copy of the deny rules stays in force in between."
	}
	var edit, back []step.Action
	if t := b.Flag.Template; t != nil {
		why = "The agent's pod is replaced and gets the new value. The routes and rules of " +
			"the node's pods stay in place."
		edit, back = []step.Action{t.New, joint.Restart(agent, node)}, []step.Action{t.Old, joint.Restart(agent, node)}
	} else {
		edit = []step.Action{b.own(node, turn.Own, "set "+b.Flag.Field+"="+turn.Value+" for "+node)}
		back = []step.Action{b.own(node, turn.Was, "restore "+b.Flag.Field+" on "+node)}
	}
	if b.Flag.Always {
		why = "The agent's pod is replaced and reads the new value. In the meantime, the state in the kernel carries " +
			"the traffic of the node's pods; the gate verifies it."
		anew := joint.Restart(agent, node)
		step.Edit(&anew, func(do *step.Restart) { do.Always = true })
		edit, back = append(edit, anew), append(back, anew)
	}
	actions := b.change(node, edit, turn, turn.To, turn.Says)
	if turn.To != "" { // else what its agent says is the proof
		actions = append(actions, b.prove(node, turn.To, turn.Says))
	}
	b.add(step.Step{
		ID: wave.Name + "/" + node + "/switch", Group: wave.Name, Does: "switch",
		Title: "Switch " + node + " to " + b.Flag.after(turn), Why: why, Wave: wave.Name, Node: node, Before: before,
		Actions: actions,
		Undo:    b.change(node, back, turn, turn.From, turn.Said),

		Alone: !canary, // of the canary nothing is to stay; from then on the nodes that are proven do
		Gate:  b.gate(node+" with "+b.Flag.after(turn)+" loses and leaks no more than the other nodes", true),
	})
}

// change gives a node a value, or takes it, and waits until its agent has done what follows: rules in a data plane,
// under a guard while they move there, or a word in its log.
func (b *builder) change(node string, edit []step.Action, turn Turn, plane, says string) []step.Action {
	if turn.Moves() {
		return []step.Action{
			guard(node, step.VerbGuard, "copy the deny rules, so that they stay in force during the switch, on "),
			edit[0],
			written(node, plane),
			b.ready(node),
			guard(node, step.VerbRelease, "remove the copied deny rules from "),
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
		Group: "prepare", Does: "hold", Title: "Stop the automatic rollout of " + joint.Name(b.Network.Agent),
		Why:     "The flag is part of the pod template, and the DaemonSet controller knows no waves and no gates.",
		Before:  []step.Condition{joint.Rolled(b.Network.Agent)},
		Actions: []step.Action{b.Flag.Template.Hold},
		Undo:    []step.Action{b.Flag.Template.Unhold},
	})
}

// unhold lets it again, when all pods are made from the same.
func (b *builder) unhold() {
	b.add(step.Step{
		Group: "fold", Does: "strategy", Title: "Resume the automatic rollout of " + joint.Name(b.Network.Agent),
		Why:     "All its pods already have the value, so it replaces none.",
		Before:  []step.Condition{joint.Rolled(b.Network.Agent), b.frozen()},
		Actions: []step.Action{b.Flag.Template.Unhold},
		Undo:    []step.Action{b.Flag.Template.Hold},
		Gate:    b.gate("no agent restarts", true),
	})
}

// frozen demands that the nodes are those of the plan.
func (b *builder) frozen() step.Condition { return step.Condition{Is: step.NodesAmong{Nodes: b.all}} }

// fold makes the value that of the cluster. Nodes have it already, so no agent restarts.
func (b *builder) fold() {
	whole, named := b.Flag.Whole(b.Flag.Value), fmt.Sprintf("%s=%v", b.Flag.Field, b.Flag.Value)
	actions := []step.Action{{Do: step.Apply{Object: &whole}, Title: "set " + named + " for the cluster"}}
	var undo []step.Action
	for _, node := range b.all {
		actions = append(actions, b.own(node, nil, "remove the node's own "+b.Flag.Field+" from "+node))
		undo = append(undo, b.own(node, b.Flag.Turns[node].Own, "set "+named+" for "+node))
	}
	for _, node := range b.all {
		turn := b.Flag.Turns[node]
		actions = append(actions, b.prove(node, turn.To, turn.Says))
	}
	undo = append(undo, patch(step.RefOf(&whole), b.Flag.WholePath, b.Flag.Before,
		"restore "+b.Flag.Field+" for the cluster"))
	b.add(step.Step{
		Group: "fold", Does: "default", Title: "Make " + named + " the value of the whole cluster",
		Why: "From here on, new nodes get the value too, and no node needs a value of its own. Every node " +
			"already has it, so no agent restarts.",
		Before:  []step.Condition{b.frozen()},
		Actions: actions,
		Undo:    undo,
		Alone:   true,
		Gate:    b.gate("traffic is unaffected by the new place of the value", true),
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
		Why:      "The report keeps the measurements. To take the flag back later, roll out its former value.",
		Actions:  b.endProbes(),
		NoReturn: true,
	})
	b.add(step.Step{
		Group: "finish", Does: "theseus", Title: "Remove Theseus' agent",
		Why:     "Only the journal stays, in namespace " + v1alpha1.Namespace + ", until you delete it.",
		Actions: leave,
	})
}
