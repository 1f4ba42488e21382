// Package upgrade is the strategy that takes a network's agents to another version node by node. Definitions and
// rights that both versions can work with come first; then the DaemonSet replaces no pod by itself any more, and one
// node after another gets an agent of the new version, measured before the next. What the agents depend on comes
// when the last of them is new, or, where that is what older agents need, before the first. Pods are not touched:
// routes and rules stay while an agent starts again.
//
// The package is pure: it turns what was seen and what is wanted into steps.
package upgrade

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how users name the strategy.
const Name = "upgrade"

// gates is about how many steps with nodes, each with a gate, a change has at most.
const gates = 256

// Steps makes the whole procedure. The target of in is the same network. Of the nodes that reflect BGP's routes no two
// are in one step, so that a gate has seen one's sessions and routes whole before the next restarts. Within are the
// ranges whose routes BIRD carries, if it does: nodes retain them while agents restart.
func Steps(in joint.Input, u *cni.Upgrade, within []string) []step.Step {
	b := &builder{Builder: joint.New(in), Upgrade: u}
	b.Prepare()
	b.SparePort()
	b.trial()
	b.define()
	b.allow()
	b.hold()
	b.own()
	for i := range b.Leaders {
		b.follow("before", &b.Leaders[i])
	}
	if len(within) > 0 {
		b.Retain(within, joint.BIRDRestarts)
	}
	limits := b.Limits
	limits.Most = min(len(b.Nodes())/gates+1, b.Most)
	for _, wave := range b.Waves {
		for i, nodes := range limits.Groups(wave.Nodes) {
			b.renew(wave, i, nodes)
		}
	}
	if len(within) > 0 {
		b.LetGo(within)
	}
	for i := range b.Followers {
		b.follow("after", &b.Followers[i])
	}
	b.fold()
	last := len(b.Steps)
	b.End([]string{"old"}, []string{"old", "new"})
	b.Steps[last].NoReturn = true
	return b.Steps
}

type builder struct {
	*joint.Builder
	*cni.Upgrade
}

func (b *builder) agent() step.Ref { return b.Source.Agent }

// frozen demands that the nodes are those of the plan.
func (b *builder) frozen() step.Condition {
	return step.Condition{Is: step.NodesAmong{Nodes: b.Nodes()}}
}

// trial runs the network's own check, and removes it again.
func (b *builder) trial() {
	if len(b.Trial) == 0 {
		return
	}
	var actions, waits []step.Action
	for _, object := range b.Trial {
		actions = append(actions, joint.Apply(object))
		if ref := step.RefOf(&object); ref.Kind == "DaemonSet" || ref.Kind == "Deployment" {
			waits = append(waits, joint.Wait("wait until "+joint.Name(ref)+" is ready", joint.Rolled(ref),
				b.Fleet(5*time.Minute)))
		}
	}
	b.Add(step.Step{
		Group: "trial", Does: "check", Title: "Run the pre-flight check of " + b.SourceName() + " " +
			b.Installation.Version,
		Why: "Its pods pull the new image on each node and let the new version validate policies, before an agent " +
			"restarts. They change nothing, and are deleted when they were ready.",
		Before:  []step.Condition{joint.Rolled(b.agent()), b.frozen()},
		Actions: slices.Concat(actions, waits, joint.Backwards(b.Trial)),
		Undo:    joint.Backwards(b.Trial),
		Gate:    b.Gate("traffic is unaffected by the pre-flight check", false),
	})
}

// define brings the new definitions. They stay when the change is taken back.
func (b *builder) define() {
	if len(b.Definitions) == 0 {
		return
	}
	agent := b.agent()
	stay := step.Action{Do: step.Patch{Ref: agent, Merge: joint.Canonical(map[string]any{})},
		Title: "keep the new CRDs, which work with both versions"}
	b.Add(step.Step{
		Group: "upgrade", Does: "definitions", Title: "Update the CRDs of " + b.SourceName() +
			" to " + b.Installation.Version,
		Why: "Agents of the new version write fields that the old CRDs do not have, and older agents ignore them. " +
			"A rollback keeps the new CRDs, because deleting a CRD deletes its objects.",
		Actions: joint.Define(b.Definitions),
		Undo:    []step.Action{stay},
		Gate:    b.Gate("agents of "+b.Source.Version+" work with the new CRDs", false),
	})
}

// allow brings what new agents need and older ones do not mind.
func (b *builder) allow() {
	var actions []step.Action
	for _, object := range slices.Concat(b.Objects, b.Rights) {
		actions = append(actions, joint.Apply(object))
	}
	if len(actions) == 0 {
		return
	}
	b.Add(step.Step{
		Group: "upgrade", Does: "rights", Title: "Grant the permissions that both versions need",
		Why: "Until the last agent of " + b.Source.Version + " is gone, the permissions of " +
			b.Installation.Version + " exist next to those of " + b.Source.Version + ".",
		Actions: actions,
		Gate:    b.Gate("traffic is unaffected by the new permissions", false),
	})
}

// holding are the actions that let the DaemonSet's controller replace no pod by itself, that take this back, and that
// let it again at the end. If an operator writes the DaemonSet, the API server denies the deletion of its pods.
func (b *builder) holding() (hold, unhold, resume []step.Action) {
	if b.Owner == nil {
		return []step.Action{b.Hold}, []step.Action{b.Unhold}, []step.Action{b.Resume}
	}
	objects := b.holders()
	for i := range objects {
		hold = append(hold, joint.Apply(objects[i]))
	}
	hold = append(hold, joint.Wait("wait until the API server denies the deletion of a pod of "+joint.Name(b.agent())+
		" (dry run)", b.held(), 2*time.Minute))
	return hold, joint.Backwards(objects), joint.Backwards(objects)
}

// holders are the policy by which the API server denies the deletion of agents' pods, and its binding.
func (b *builder) holders() []unstructured.Unstructured {
	agent := b.agent()
	pods, _ := labels.ConvertSelectorToLabelsMap(b.Source.Selector) // it is made of such a map
	return manifest.Hold("theseus-hold-"+agent.Namespace+"-"+agent.Name, agent.Namespace, pods)
}

// held is the hold being in force.
func (b *builder) held() step.Condition {
	policy := step.RefOf(&b.holders()[0])
	return step.Condition{Is: step.Held{Ref: policy, Namespace: b.agent().Namespace, Selector: b.Source.Selector}}
}

// renders is a workload whose new pods are of a version.
func renders(ref step.Ref, version string) step.Condition {
	return step.Condition{Is: step.Renders{Ref: ref, Version: version}}
}

// own upgrades the owner, which then recreates everything except the agents' pods.
func (b *builder) own() {
	o := b.Owner
	if o == nil {
		return
	}
	before, actions := []step.Condition{joint.Rolled(b.agent()), b.frozen(), b.held()},
		b.owned(o.New, b.Installation.Version)
	if o.Whole != nil {
		before = append(before, *o.Whole)
		actions = append(actions, joint.Wait("wait until "+joint.Name(o.Ref)+" reports no failure",
			*o.Sound, b.Fleet(2*time.Minute)))
	}
	b.Add(step.Step{
		Group: "owner", Does: o.Ref.Name, Title: "Update " + joint.Name(o.Ref) + " from " + o.From + " to " + o.To,
		Why:     o.Why,
		Before:  before,
		Actions: actions,
		Undo:    b.owned(o.Old, b.Source.Version),
		Gate:    b.Gate("traffic is unaffected by what "+joint.Name(o.Ref)+" rolled out", true),
	})
}

// owned changes the owner, and waits until all that it makes is of a version, but for the agents' pods.
func (b *builder) owned(change []step.Action, version string) []step.Action {
	o := b.Owner
	limit := b.Fleet(10 * time.Minute)
	actions := append(slices.Clone(change),
		joint.Wait("wait until "+joint.Name(o.Ref)+" is ready", joint.Rolled(o.Ref), limit))
	for _, ref := range append(slices.Clone(o.Rolls), b.agent()) {
		actions = append(actions, joint.Wait("wait until it updates "+joint.Name(ref)+" to "+version,
			renders(ref, version), limit))
	}
	for _, ref := range o.Rolls {
		actions = append(actions, joint.Wait("wait until "+joint.Name(ref)+" is ready", joint.Rolled(ref), limit))
	}
	return actions
}

// hold keeps the DaemonSet's controller from rolling.
func (b *builder) hold() {
	why := "The DaemonSet controller knows no waves and no gates, and ignores pods that are already unready."
	if b.Owner != nil {
		why += " " + joint.Name(b.Owner.Ref) + " reverts any change of the update strategy. So the API server denies " +
			"the deletion of these pods instead, except of a pod whose turn it is, a terminating pod and a failed pod."
	}
	hold, unhold, _ := b.holding()
	b.Add(step.Step{
		Group: "upgrade", Does: "hold", Title: "Stop the automatic rollout of " + joint.Name(b.agent()),
		Why:     why,
		Before:  []step.Condition{joint.Rolled(b.agent())},
		Actions: hold,
		Undo:    unhold,
		Gate:    b.Gate("no agent restarts", false),
	})
}

// renew gives some nodes of a wave agents of the new version.
func (b *builder) renew(wave joint.Wave, part int, nodes []string) {
	var before []step.Condition
	if part == 0 {
		before = append(before, b.frozen())
	}
	old := b.Agent.Old
	if b.Owner != nil {
		before = append(before, b.held(), renders(b.agent(), b.Installation.Version))
		old = b.owned(b.Owner.Old, b.Source.Version)
	}
	for _, node := range nodes {
		before = append(before, b.SourceOn(node)...)
	}
	some, one := fmt.Sprintf("part-%d", part+1), ""
	if len(nodes) == 1 {
		some, one = "", nodes[0]
	}
	b.Add(step.Step{
		ID: wave.Name + "/" + some + one, Group: wave.Name, Does: "renew",
		Title: "Update " + joint.List(nodes) + " to " + b.Installation.Version,
		Why: "The agent restarts; the routes and rules of the node's pods stay in place. The undo " +
			"restarts it with the template of " +
			b.Source.Version + ".",
		Wave: wave.Name, Part: some, Node: one, Before: before,
		Actions: slices.Concat(b.Agent.New, b.restart(nodes)),
		Undo:    slices.Concat(old, b.restart(backwards(nodes))),
		Gate:    b.Gate("traffic of "+joint.List(nodes)+" is unaffected on "+b.Installation.Version, true),
	})
}

func backwards(nodes []string) []string {
	nodes = slices.Clone(nodes)
	slices.Reverse(nodes)
	return nodes
}

// restart replaces the agents of nodes at once.
func (b *builder) restart(nodes []string) []step.Action {
	return joint.OnEach(nodes, func(node string) step.Action {
		action := joint.Restart(b.agent(), node)
		if b.Owner != nil {
			step.Edit(&action, func(do *step.Restart) { do.Mark = v1alpha1.AnnotationReplace })
		}
		return action
	})
}

// follow brings a Deployment to the new version, before or after the agents.
func (b *builder) follow(when string, f *cni.Follower) {
	whole := func() step.Action {
		// nothing new is programmed without Typha
		return joint.Wait("wait until "+joint.Name(f.Ref)+" is ready", joint.Rolled(f.Ref), b.Fleet(2*time.Minute))
	}
	b.Add(step.Step{
		Group: when, Does: f.Ref.Name, Title: "Update " + joint.Name(f.Ref) + " to " + b.Installation.Version,
		Why:     f.Why,
		Before:  []step.Condition{joint.Rolled(b.agent())},
		Actions: append(slices.Clone(f.New), whole()),
		Undo:    append(slices.Clone(f.Old), whole()),
		Gate:    b.Gate("traffic is unaffected by the new "+joint.Name(f.Ref), true),
	})
}

// fold gives everything the form that the manifest says.
func (b *builder) fold() {
	ref := b.agent()
	hold, _, resume := b.holding()
	if b.Owner != nil && b.Owner.Whole != nil {
		resume = append(resume, joint.Wait("wait until "+joint.Name(b.Owner.Ref)+
			" reports that all its components are available", *b.Owner.Whole, b.Fleet(2*time.Minute)))
	}
	b.Add(step.Step{
		Group: "fold", Does: "strategy", Title: "Resume the automatic rollout of " + joint.Name(ref),
		Why:     "All its pods already run " + b.Installation.Version + ", so it replaces none.",
		Before:  []step.Condition{joint.Rolled(ref), b.frozen()},
		Actions: resume,
		Undo:    hold,
		Gate:    b.Gate("no agent restarts", false),
	})
	if len(b.Roles) == 0 {
		return
	}
	var actions []step.Action
	for _, role := range b.Roles {
		actions = append(actions, joint.Apply(role))
	}
	b.Add(step.Step{
		Group: "fold", Does: "rights", Title: "Remove the permissions that only " + b.Source.Version + " needs",
		Why:     "No agent of " + b.Source.Version + " is left.",
		Before:  []step.Condition{joint.Rolled(ref)},
		Actions: append(actions, joint.Backwards(b.Rights)...),
		Gate:    b.Gate("agents work with the permissions of "+b.Installation.Version, true),
	})
}
