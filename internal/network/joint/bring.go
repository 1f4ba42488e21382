package joint

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Bring installs the target next to the source, so that both networks carry traffic on every node before the
// first pod moves.
func (b *Builder) Bring() {
	if b.Target.Adoption != nil {
		b.acceptEither()
	}
	b.defineTarget()
	b.applyTarget()
	if b.Target.Adoption != nil {
		b.definePools()
	}
	b.cede()
	for i, wave := range b.Waves {
		b.startAgents(wave, i == 0, i == len(b.Waves)-1)
	}
	b.applyPools()
}

// cede lets the source's agent leave a part of its work to the target's on nodes that get the label; none has it yet.
func (b *Builder) cede() {
	cession := b.Source.Cession
	if cession == nil {
		return
	}
	agent, keep := b.Source.Agent, step.RefOf(cession.Keep)
	patch := func(merge json.RawMessage, title string) step.Action {
		return step.Action{Do: step.Patch{Ref: agent, Merge: Canonical(merge)}, Title: title}
	}
	b.Add(step.Step{
		Group: "joint", Does: "cede",
		Title: "Prepare " + b.SourceName() + " to leave policy to " + b.TargetName() + ", node by node",
		Why: "Both run the same agent for policy, and two of them on one node would write the same rules. When a " +
			"node gets the label " + v1alpha1.LabelTarget + ", " + Name(agent) + " leaves it, and " + Name(keep) +
			" does the rest of its work there. The agent of " + b.TargetName() + " takes over the rules in the " +
			"kernel, and enforces the same policies for the pods of both networks. No node has the label yet, and " +
			"no pod is restarted. To undo the step, pods of " + Name(agent) + " that started after it start once " +
			"more, as its update strategy says, and no gate is between them.",
		Actions: []step.Action{Apply(*cession.Keep),
			patch(cession.Leave, "keep "+Name(agent)+" off nodes with the label "+v1alpha1.LabelTarget)},
		Undo: []step.Action{patch(cession.Return, "run "+Name(agent)+" on every node again"),
			Wait("wait until "+Name(agent)+" is ready on every node", Rolled(agent),
				5*time.Minute+time.Duration(len(b.Nodes()))*20*time.Second), // its pods may start again one by one
			Remove(keep)},
	})
}

// ceded waits on nodes that got the label until the rest of the source's agent runs there, and given on those that lost
// it until the whole agent does. Both networks' DaemonSets follow the label at once, so no step can make one agent
// wait for the end of the other.
func (b *Builder) ceded(nodes []string) (ceded, given []step.Action) {
	cession := b.Source.Cession
	if cession == nil {
		return nil, nil
	}
	ceded = OnEach(nodes, func(node string) step.Action {
		return Wait("wait until the rest of "+b.SourceName()+" is ready on "+node,
			agentOn(b.Source.Agent, cession.Selector, node), b.Fleet(2*time.Minute))
	})
	given = slices.Concat(
		OnEach(nodes, func(node string) step.Action {
			return Wait("wait until the rest of "+b.SourceName()+" has stopped on "+node, step.Condition{
				Is: step.PodGone{Node: node, Namespace: b.Source.Agent.Namespace, Selector: cession.Selector}},
				2*time.Minute)
		}),
		OnEach(nodes, func(node string) step.Action {
			return Wait("wait until "+b.SourceName()+" is ready on "+node, b.SourceAgentOn(node), 2*time.Minute)
		}))
	return ceded, given
}

// applyPools gives the target the pools that its agents would make if the source had made none.
func (b *Builder) applyPools() {
	if len(b.Target.Pools) == 0 {
		return
	}
	var actions []step.Action
	for _, pool := range b.Target.Pools {
		actions = append(actions, Apply(pool))
	}
	b.Add(step.Step{
		Group: "joint", Does: "pool",
		Title: "Give " + b.TargetName() + " its range",
		Why: b.SourceName() + " has made a pool of this name, from which no pod gets an address. Nodes that still " +
			"ran the whole agent of " + b.SourceName() + " would use the pool's tunnel, so this comes when none does.",
		Before:  []step.Condition{Rolled(b.Target.Installation.Agent)},
		Actions: actions,
		Gate:    b.Gate("traffic is unaffected by the range of "+b.TargetName(), false),
	})
}

// TargetName is the target's name in texts, SourceName the source's.
func (b *Builder) TargetName() string { return b.Target.Installation.Title() }

// SourceName is the source's name in texts.
func (b *Builder) SourceName() string { return b.Source.Title() }

// TargetOn is the condition that the target's agent is ready on a node.
func (b *Builder) TargetOn(node string) step.Condition {
	return agentOn(b.Target.Installation.Agent, b.Target.Installation.Selector, node)
}

// Running returns the conditions for moving a node's pods: the node and the agents of both networks are ready.
func (b *Builder) Running(node string) []step.Condition {
	return append(b.SourceOn(node), b.TargetOn(node))
}

// SourceOn returns the conditions that a node is ready, and the source's agent on it, if the source has agents.
func (b *Builder) SourceOn(node string) []step.Condition {
	if !b.Source.HasAgent() {
		return []step.Condition{NodeReady(node)}
	}
	return []step.Condition{NodeReady(node), b.SourceAgentOn(node)}
}

// SourceAgentOn is the condition that the source's agent is ready on a node, if the source has agents.
func (b *Builder) SourceAgentOn(node string) step.Condition {
	return agentOn(b.Source.Agent, b.Source.Selector, node)
}

func agentOn(agent step.Ref, selector, node string) step.Condition {
	return step.Condition{Is: step.PodReady{Node: node, Namespace: agent.Namespace, Selector: selector}}
}

// NodeReady is the condition that a node is Ready.
func NodeReady(node string) step.Condition { return step.Condition{Is: step.NodeReady{Node: node}} }

// joinOn joins the networks on nodes.
func (b *Builder) joinOn(nodes []string) (actions, undo []step.Action) {
	join := Canonical(b.Join)
	actions = OnEach(nodes, func(node string) step.Action {
		return OnNode(node, step.VerbJoin, "add the rules that join both networks on "+node, join)
	})
	undo = OnEach(nodes, func(node string) step.Action {
		return OnNode(node, step.VerbPart, "remove the rules that join both networks on "+node, join)
	})
	return actions, undo
}

// acceptEither is the first step of an adoption, which has no new addresses to translate.
func (b *Builder) acceptEither() {
	actions, undo := b.joinOn(b.Nodes())
	b.Add(step.Step{
		Group: "joint", Does: "join",
		Title: "Accept packets from either network on every node",
		Why: "While pods and routes move, a packet can arrive over one network and its reply leave over the " +
			"other. A strict rp_filter would drop it.",
		Actions: actions,
		Undo:    undo,
		Gate:    b.Gate("traffic is unaffected by the rules that join both networks", false),
	})
}

func (b *Builder) defineTarget() {
	b.leaveDefining()
	if len(b.Target.Definitions) == 0 {
		return
	}
	b.Add(step.Step{
		Group: "joint", Does: "definitions",
		Title:   "Create the CRDs of " + b.TargetName(),
		Why:     b.TargetName() + "'s agents store their data in these resources.",
		Actions: Define(b.Target.Definitions),
	})
}

// leaveDefining makes sure that the CRDs are not there which the target creates itself, so that a rollback deletes only
// what the target has created. That they are not there is demanded before the step's actions: when an action fails, the
// step is undone.
func (b *Builder) leaveDefining() {
	if len(b.Target.Installation.Defines) == 0 {
		return
	}
	var before []step.Condition
	var undo []step.Action
	for _, ref := range b.Target.Installation.Defines {
		before = append(before, Gone(ref))
		undo = append(undo, Remove(ref))
	}
	agent := b.Target.Installation.Agent
	b.Add(step.Step{
		Group: "joint", Does: "own-definitions",
		Title: "Let " + b.TargetName() + " create its own CRDs",
		Why: b.TargetName() + " creates them when it runs, so no manifest has them, and they outlive " +
			"it. None of them exists yet. To undo this, Theseus deletes them all, with everything in them.",
		Before:  before,
		Actions: []step.Action{Wait("make sure that "+Name(agent)+" does not exist", Gone(agent), time.Minute)},
		Undo:    Together(undo),
	})
}

func (b *Builder) applyTarget() {
	var before []step.Condition
	for i := range b.Target.Definitions {
		before = append(before, established(step.RefOf(&b.Target.Definitions[i])))
	}
	maker := b.Target.Installation.Maker
	var rights, namespaces, rest, last []step.Action
	if cession := b.Source.Cession; cession != nil {
		for _, right := range cession.Rights {
			rights = append(rights, Apply(right))
		}
	}
	for _, object := range b.Target.Objects {
		switch {
		case object.GetKind() == "Namespace":
			namespaces = append(namespaces, Apply(object))
		case maker != nil && step.RefOf(&object) == maker.Ref:
			last = append(last, Apply(object), b.made("with the node selector", b.Target.Made.Joint))
		default:
			rest = append(rest, Apply(object))
		}
	}
	why := "Its DaemonSet runs only on nodes with the label " + v1alpha1.LabelTarget +
		", and its CNI configuration gets a file name that container runtimes ignore."
	if maker != nil {
		why += " The operator creates the agents from " + Name(maker.Ref) +
			", which contains both settings. To undo the step, Theseus deletes that object, and the operator " +
			"removes what it created. The operator's other workloads must be ready before the first agent starts, " +
			"because agents may depend on them."
		last = append(last, Together(b.madeReady())...)
	}
	if len(rights) > 0 {
		why += " A role of " + b.TargetName() + " takes the place of one of the same name. What the agents of " +
			b.SourceName() + " need of that comes first, under a name of its own."
	}
	b.Add(step.Step{
		Group: "joint", Does: "target",
		Title:   "Install " + b.TargetName() + " without starting it on any node",
		Why:     why,
		Before:  before,
		Actions: slices.Concat(Together(rights), Together(namespaces), Together(rest), last),
	})
}

// made waits until an operator has given the agents' DaemonSet certain fields.
func (b *Builder) made(how string, fields json.RawMessage) step.Action {
	agent := b.Target.Installation.Agent
	return Wait("wait until the operator has created "+Name(agent)+" "+how,
		step.Condition{Is: step.Has{Ref: agent, Fields: fields}}, 5*time.Minute)
}

// madeReady waits for the Deployments that an operator creates, such as the one that its agents query; none of them
// needs an agent.
func (b *Builder) madeReady() []step.Action {
	var actions []step.Action
	for _, ref := range b.Target.Installation.Maker.Makes {
		if ref.Kind == "Deployment" {
			actions = append(actions, Wait("wait until "+Name(ref)+" is ready", Rolled(ref), 5*time.Minute))
		}
	}
	return actions
}

// definePools creates the target's pool for the range that it takes over, before its first agent looks for a pool.
func (b *Builder) definePools() {
	var actions []step.Action
	for _, pool := range b.Target.Adoption.Pools {
		actions = append(actions, Apply(pool))
	}
	b.Add(step.Step{
		Group: "joint", Does: "pools",
		Title: "Create " + b.TargetName() + "'s IP pool for the range of " + b.SourceName(),
		Why: "Running pods keep their addresses, so " + b.TargetName() +
			" needs a pool for their range. It assigns no address from the pool yet, " +
			"because it does not know which ones are in use.",
		Actions: actions,
	})
}

// startAgents starts the target on the nodes of a wave; after the last wave it is complete.
func (b *Builder) startAgents(wave Wave, first, last bool) {
	var before []step.Condition
	agent, residue := b.Target.Installation.Agent, Canonical(b.TargetResidue)
	for _, node := range wave.Nodes {
		before = append(before, NodeReady(node))
	}
	undo := slices.Concat(
		OnEach(wave.Nodes, func(node string) step.Action {
			return Label(node, v1alpha1.LabelTarget, nil, "stop "+b.TargetName()+" on "+node+" (remove its label)")
		}),
		OnEach(wave.Nodes, func(node string) step.Action {
			return Wait("wait until "+b.TargetName()+" has stopped on "+node, step.Condition{
				Is: step.PodGone{Node: node, Namespace: agent.Namespace, Selector: b.Target.Installation.Selector}},
				2*time.Minute)
		}),
		OnEach(wave.Nodes, func(node string) step.Action {
			return OnNode(node, step.VerbClean, "remove the residue of "+b.TargetName()+" from "+node, residue)
		}))
	ceded, given := b.ceded(wave.Nodes)
	undo = append(undo, given...)
	var actions []step.Action
	why := "No pod has an address from " + b.TargetName() + " yet; " + b.SourceName() + " still serves every pod."
	if b.Target.Adoption == nil {
		joins, parts := b.joinOn(wave.Nodes)
		actions, undo = joins, append(undo, parts...)
		why = "The join rules come first. They keep the real source addresses of traffic between the two networks, " +
			"which NetworkPolicy needs, and a connection keeps the address translation that it starts with. " + why
	}
	actions = slices.Concat(actions,
		OnEach(wave.Nodes, func(node string) step.Action {
			return Label(node, v1alpha1.LabelTarget, "true", "start "+b.TargetName()+" on "+node+" (set its label)")
		}),
		ceded,
		OnEach(wave.Nodes, func(node string) step.Action {
			return Wait("wait until "+b.TargetName()+" is ready on "+node, b.TargetOn(node), b.Fleet(5*time.Minute))
		}))
	if first {
		undo = append(Backwards(b.Target.Extras), undo...)
		for _, extra := range b.Target.Extras {
			actions = append(actions, Apply(extra))
		}
	}
	title := "traffic is unaffected by " + b.TargetName() + " on " + List(wave.Nodes)
	if last { // no pod may move while a node exists from which its new address cannot be reached
		title = "both networks are up on every node, and traffic is unaffected"
		actions = append(actions, b.targetWhole()...)
		undo = append(Backwards(b.Target.Policies), undo...)
		actions = append(actions, b.enact()...)
		if len(b.Target.Policies) > 0 {
			why += " At the end, Theseus creates the policies of your manifest: no pod is on " +
				b.TargetName() + " yet."
		}
	}
	b.Add(step.Step{
		ID: "joint/agents/" + wave.Name, Group: "joint", Does: "agents",
		Title:   "Start " + b.TargetName() + " next to " + b.SourceName() + " on " + List(wave.Nodes),
		Why:     why,
		Wave:    wave.Name,
		Before:  before,
		Actions: actions,
		Undo:    undo,
		Gate:    b.Gate(title, last),
	})
}

// enact applies the target's own policies, when their CRDs are served.
func (b *Builder) enact() []step.Action {
	var actions []step.Action
	for _, kind := range cluster.PolicyKinds() {
		if slices.ContainsFunc(b.Target.Policies, func(o unstructured.Unstructured) bool {
			return kind.Is(o.GroupVersionKind().Group, o.GetKind())
		}) {
			ref := step.Ref{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition",
				Name: kind.Resource + "." + kind.Group}
			actions = append(actions, Wait("wait until "+Name(ref)+" is served", established(ref), 2*time.Minute))
		}
	}
	for i := range b.Target.Policies {
		actions = append(actions, Apply(b.Target.Policies[i]))
	}
	return actions
}

// targetWhole waits for the target's agents and for other workloads, such as controllers.
func (b *Builder) targetWhole() []step.Action {
	actions := []step.Action{b.AgentsReady()}
	for _, object := range slices.Concat(b.Target.Objects, b.Target.Extras) {
		ref := step.RefOf(&object)
		if ref.Kind == "Deployment" || ref.Kind == "StatefulSet" {
			actions = append(actions, Wait("wait until "+Name(ref)+" is ready", Rolled(ref), 5*time.Minute))
		}
	}
	if maker := b.Target.Installation.Maker; maker != nil {
		actions = append(actions, b.madeReady()...)
		actions = append(actions, Wait("wait until the operator reports that all its components are available",
			maker.Ready, 5*time.Minute))
	}
	return Together(actions)
}

// AgentsReady waits until the target's agent is ready on all its nodes.
func (b *Builder) AgentsReady() step.Action {
	agent := b.Target.Installation.Agent
	return Wait("wait until "+Name(agent)+" is ready on every node", Rolled(agent), b.Fleet(5*time.Minute))
}

// List names nodes, the first three of many.
func List(nodes []string) string {
	if len(nodes) > 4 {
		return strings.Join(nodes[:3], ", ") + " and " + cluster.Count(len(nodes)-3, "other node")
	}
	return strings.Join(nodes, ", ")
}

// ListOrAll is List, unless nodes are all nodes of the cluster.
func ListOrAll(nodes []string, all bool) string {
	if all {
		return "all nodes"
	}
	return List(nodes)
}
