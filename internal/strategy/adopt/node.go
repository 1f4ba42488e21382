package adopt

import (
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/strategy/joint"
)

// rehearse lets every agent say what it would refuse, before anything is moved.
func (b *builder) rehearse() {
	actions := joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.OnNode(node, step.VerbAdoptable, "look at each pod of "+node+": can it be adopted?",
			step.AdoptArgs{From: b.source, To: b.target, Skip: b.apart(node)})
	})
	b.Add(step.Step{
		ID:       "joint/rehearse",
		Title:    "Make sure that every pod can be adopted",
		Why:      "What stands against it is in the pod's own interfaces, routes and plugins, where only the node's agent sees it; nothing is changed for the answer.",
		Before:   []step.Condition{joint.Rolled(b.Target.Installation.Agent)},
		Actions:  actions,
		Estimate: step.Duration(b.PerNode(time.Second)),
	})
}

func (b *builder) apart(node string) []string {
	var names []string
	for _, pod := range b.Outlook.Apart[node] {
		names = append(names, pod.Name)
	}
	return names
}

func (b *builder) adoptNode(wave joint.Wave, node string, last bool) {
	b.adoptCanary(wave, node)
	b.adoptRest(wave, node)
	apart := len(b.Outlook.Apart[node]) > 0
	b.switchNode(wave, node, last && !apart)
	if apart {
		b.recreateApart(wave, node, last)
	}
}

func (b *builder) adoptCanary(wave joint.Wave, node string) {
	pods := []string{canary(node)}
	b.Add(step.Step{
		ID:      wave.Name + "/" + node + "/canary",
		Title:   "Adopt one pod of " + node + ": the probe pod",
		Why:     "It is measured from and to every node, Service, name and host while it moves: a way counts as proven when traffic has crossed it.",
		Wave:    wave.Name,
		Node:    node,
		Before:  append(b.Running(node), joint.ProbePodReady(node, "old")),
		Actions: []step.Action{b.to(node, "move the probe pod of "+node+" to "+b.TargetName(), pods, nil)},
		Undo:    []step.Action{b.back(node, "move the probe pod of "+node+" back to "+b.Source.CNI, pods, nil)},
		Gate:    b.Gate("the probe pod of "+node+" did not notice", false), Estimate: step.Duration(8 * time.Second),
	})
}

func (b *builder) adoptRest(wave joint.Wave, node string) {
	pods := b.Outlook.PerNode[node] - len(b.Outlook.Apart[node])
	b.Add(step.Step{
		ID:       wave.Name + "/" + node + "/adopt",
		Title:    "Adopt the pods of " + node,
		Why:      "They go on to run, with their addresses and their connections; pods that start meanwhile come up on " + b.Source.CNI + " and are adopted by the next step.",
		Wave:     wave.Name,
		Node:     node,
		Before:   b.Running(node),
		Actions:  []step.Action{b.to(node, "move the pods of "+node+" to "+b.TargetName(), nil, b.apart(node))},
		Undo:     []step.Action{b.back(node, "move the pods of "+node+" back to "+b.Source.CNI, nil, []string{canary(node)})},
		Gate:     b.Gate("nobody noticed that "+b.TargetName()+" carries the pods of "+node, false),
		Estimate: step.Duration(5*time.Second + time.Duration(pods)*time.Second/2),
	})
}

// switchNode lets the target serve new pods. In between it gives no address at all: a pod that starts just then
// waits for a moment, and none gets an address that is taken by a pod which the target does not know yet.
func (b *builder) switchNode(wave joint.Wave, node string, last bool) {
	title := "pods made by either network reach each other from and to " + node
	estimate := 15 * time.Second
	if last {
		title = wave.Name + " is adopted and nothing was lost"
		estimate += b.Bake()
	}
	b.Add(step.Step{
		ID:    wave.Name + "/" + node + "/switch",
		Title: "Let " + b.TargetName() + " serve new pods on " + node,
		Why: "First the runtime asks " + b.TargetName() + ", which has no address to give on this node; then what " + b.Source.CNI +
			" made until that moment is adopted; only then is every address that is taken known, and new pods get others.",
		Wave:   wave.Name,
		Node:   node,
		Before: b.Running(node),
		Actions: []step.Action{
			joint.OnNode(node, step.VerbActivate, "make "+b.Target.Conf.Active+" the CNI configuration of "+node, b.Target.Conf),
			b.to(node, "move to "+b.TargetName()+" what "+b.Source.CNI+" made on "+node+" until then", nil, b.apart(node)),
			joint.Label(node, v1alpha1.LabelAdopted, b.adopted[node], "let "+b.TargetName()+" give addresses on "+node),
			joint.Apply(*manifest.ProbePod(b.Change.AgentImage, node, "new")),
			joint.Wait("wait until the new probe pod of "+node+" is ready", joint.ProbePodReady(node, "new"), 3*time.Minute),
			joint.Probe("measure a pod of "+node+" that "+b.TargetName()+" made, too", step.PathSet{Old: joint.Every(), New: joint.Every()}),
		},
		Undo: []step.Action{
			joint.Probe("stop measuring the new probe pod of "+node, step.PathSet{Old: joint.Every(), New: joint.Every(), WithoutNew: []string{node}}),
			joint.Remove(joint.ProbePod(node, "new")),
			joint.Label(node, v1alpha1.LabelAdopted, nil, "let "+b.TargetName()+" give no address on "+node+" any more"),
			b.back(node, "move the pods of "+node+" back to "+b.Source.CNI+", those that "+b.TargetName()+" made too", nil, []string{canary(node)}),
			joint.OnNode(node, step.VerbDeactivate, "make "+b.Source.Capabilities.ConfName+" the CNI configuration of "+node+" again", b.Target.Conf),
		},
		Gate:     b.Gate(title, last),
		Estimate: step.Duration(estimate),
	})
}

// recreateApart moves the pods that cannot be adopted as the strategy recreate would.
func (b *builder) recreateApart(wave joint.Wave, node string, last bool) {
	names := b.apart(node)
	evict := joint.Evict(node, b.Source.CNI, b.Join.Old, len(names))
	evict.Pods.Names = names
	evict.Title = "evict the pods of " + node + " that cannot be adopted: " + joint.List(names)
	b.Add(step.Step{
		ID:       wave.Name + "/" + node + "/recreate",
		Title:    "Create again the pods of " + node + " that cannot be adopted",
		Why:      "Each has a reason, named above. They are evicted within their budgets, of each workload one at a time.",
		Wave:     wave.Name,
		Node:     node,
		Before:   []step.Condition{joint.ProbePodReady(node, "new")},
		Actions:  []step.Action{evict},
		Gate:     b.Gate(b.TargetName()+" carries all pods of "+node, last),
		Estimate: step.Duration(5*time.Second + time.Duration(len(names))*8*time.Second),
	})
}
