package recreate

import (
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// joint brings the target up beside the source, so that both networks carry traffic on every node before
// the first pod moves.
func (b *builder) joint() {
	b.joinNodes()
	b.defineTarget()
	b.applyTarget()
	for i, wave := range b.Waves {
		b.startAgents(wave, i == 0)
	}
	b.targetWhole()
	b.keepOff()
}

func (b *builder) target() string { return b.Target.Installation.CNI }

// targetOn is the target's agent on one node.
func (b *builder) targetOn(node string) step.Condition {
	return agentOn(b.Target.Installation.Agent, b.Target.Installation.Selector, node)
}

func (b *builder) sourceOn(node string) step.Condition {
	return agentOn(b.Source.Agent, b.Source.Selector, node)
}

func agentOn(agent step.Ref, selector, node string) step.Condition {
	return step.Condition{Kind: step.PodReady, Node: node, Namespace: agent.Namespace, Selector: selector}
}

func nodeReady(node string) step.Condition { return step.Condition{Kind: step.NodeReady, Node: node} }

func (b *builder) joinNodes() {
	actions := onEach(b.nodes(), func(node string) step.Action {
		return onNode(node, step.VerbJoin, "join the networks on "+node, b.join)
	})
	var undo []step.Action
	for _, node := range b.nodes() {
		undo = append(undo, onNode(node, step.VerbPart, "part the networks on "+node, b.join))
	}
	b.add(step.Step{
		ID:    "joint/join",
		Title: "Join the two networks on every node",
		Why: "Pods of one network must see the true addresses of the other's, or policy that names sources breaks; " +
			"as connections keep the translation that they began with, this comes before the first of them.",
		Actions:  actions,
		Undo:     undo,
		Gate:     b.gate("nothing noticed the rules that join the networks", false),
		Estimate: step.Duration(5*time.Second + b.perNode(2*time.Second)),
	})
}

func (b *builder) defineTarget() {
	var actions []step.Action
	for _, definition := range b.Target.Definitions {
		actions = append(actions, apply(definition))
	}
	for i := range b.Target.Definitions {
		ref := step.RefOf(&b.Target.Definitions[i])
		actions = append(actions, wait("wait until "+name(ref)+" serves", established(ref), time.Minute))
	}
	if len(actions) == 0 {
		return
	}
	b.add(step.Step{
		ID:       "joint/definitions",
		Title:    "Define the custom resources of " + b.target(),
		Why:      "Its agents keep their data in them.",
		Actions:  actions,
		Estimate: step.Duration(10 * time.Second),
	})
}

func (b *builder) applyTarget() {
	var before []step.Condition
	for i := range b.Target.Definitions {
		before = append(before, established(step.RefOf(&b.Target.Definitions[i])))
	}
	var actions []step.Action
	for _, object := range b.Target.Objects {
		actions = append(actions, apply(object))
	}
	b.add(step.Step{
		ID:       "joint/target",
		Title:    "Install " + b.target() + " on no node yet",
		Why:      "Its agent waits for the label " + v1alpha1.LabelTarget + " of each node, and its CNI configuration gets a name that no runtime reads.",
		Before:   before,
		Actions:  actions,
		Estimate: step.Duration(5 * time.Second),
	})
}

func (b *builder) startAgents(wave Wave, first bool) {
	var before []step.Condition
	var actions, undo []step.Action
	agent := b.Target.Installation.Agent
	for _, node := range wave.Nodes {
		before = append(before, nodeReady(node))
		actions = append(actions, labelNode(node, "true", "let "+b.target()+" run on "+node))
	}
	for _, node := range wave.Nodes {
		actions = append(actions, wait("wait until "+b.target()+" is ready on "+node, b.targetOn(node), 5*time.Minute+time.Duration(len(wave.Nodes))*time.Second))
		undo = append(undo, labelNode(node, nil, "take "+b.target()+" off "+node))
	}
	for _, node := range wave.Nodes {
		undo = append(undo,
			wait("wait until "+b.target()+" is gone from "+node, step.Condition{
				Kind: step.PodGone, Node: node, Namespace: agent.Namespace, Selector: b.Target.Installation.Selector}, 2*time.Minute),
			onNode(node, step.VerbClean, "clean "+node+" of "+b.target(), b.TargetResidue))
	}
	if first {
		undo = append(backwards(b.Target.Extras), undo...)
		for _, extra := range b.Target.Extras {
			actions = append(actions, apply(extra))
		}
	}
	b.add(step.Step{
		ID:       "joint/agents/" + wave.Name,
		Title:    "Start " + b.target() + " beside " + b.Source.CNI + " on " + list(wave.Nodes),
		Why:      "It carries traffic to the target's addresses, of which no pod has one yet; " + b.Source.CNI + " goes on serving every pod.",
		Wave:     wave.Name,
		Before:   before,
		Actions:  actions,
		Undo:     undo,
		Gate:     b.gate(b.target()+" beside "+b.Source.CNI+" disturbs nothing on "+list(wave.Nodes), false),
		Estimate: step.Duration(15*time.Second + time.Duration(len(wave.Nodes))*time.Second),
	})
}

// targetWhole waits for what else belongs to the target, such as its controllers.
func (b *builder) targetWhole() {
	agent := b.Target.Installation.Agent
	actions := []step.Action{wait("wait until "+name(agent)+" is ready on every node", rolled(agent), b.fleet(5*time.Minute))}
	for i := range b.Target.Objects {
		ref := step.RefOf(&b.Target.Objects[i])
		if ref.Kind == "Deployment" || ref.Kind == "StatefulSet" {
			actions = append(actions, wait("wait until "+name(ref)+" is ready", rolled(ref), 5*time.Minute))
		}
	}
	b.add(step.Step{
		ID:       "joint/whole",
		Title:    "Check that both networks carry traffic on every node",
		Why:      "No pod may move while there is a node from which it could not be reached on its new address.",
		Actions:  actions,
		Gate:     b.gate("both networks are up and nothing was lost", true),
		Estimate: step.Duration(10*time.Second + b.bake()),
	})
}

// keepOff steers new pods to nodes that are switched, so that few pods move twice.
func (b *builder) keepOff() {
	var undo []step.Action
	for _, node := range b.nodes() {
		undo = append(undo, untaint(node))
	}
	b.add(step.Step{
		ID:       "switch/prefer",
		Title:    "Prefer switched nodes for new pods",
		Why:      "A pod that is evicted should come back on the new network; the taint is soft, so it comes back in any case.",
		Before:   []step.Condition{rolled(b.Target.Installation.Agent)},
		Actions:  onEach(b.nodes(), taint),
		Undo:     undo,
		Estimate: step.Duration(2*time.Second + b.perNode(20*time.Millisecond)),
	})
}

// list names nodes, the first three of many.
func list(nodes []string) string {
	if len(nodes) > 4 {
		return strings.Join(nodes[:3], ", ") + " and " + noun(len(nodes)-3, "other node")
	}
	return strings.Join(nodes, ", ")
}
