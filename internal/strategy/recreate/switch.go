package recreate

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/strategy/joint"
)

// switchNodes switches the nodes of one wave after another, and moves their pods node by node.
func (b *builder) switchNodes() {
	for _, wave := range b.Waves {
		b.switchWave(wave)
		for i, node := range wave.Nodes {
			b.moveNode(wave, node, i == len(wave.Nodes)-1)
		}
	}
	b.verifyEmpty()
}

func (b *builder) switchWave(wave joint.Wave) {
	var before []step.Condition
	var undo, removals, evictions []step.Action
	for _, node := range wave.Nodes {
		before = append(before, joint.NodeReady(node), b.SourceOn(node), b.TargetOn(node))
		undo = append(undo, joint.OnNode(node, step.VerbDeactivate, "make "+b.Source.Capabilities.ConfName+" the CNI configuration of "+node+" again", b.Target.Conf))
		removals = append(removals, joint.Remove(joint.ProbePod(node, "new")))
		evictions = append(evictions, joint.Evict(node, b.TargetName(), b.Join.New, b.Outlook.PerNode[node]))
	}
	nodes := joint.List(wave.Nodes)
	undo = append(undo, joint.Probe("stop measuring the new probe pods of "+nodes, step.PathSet{Old: joint.Every(), New: joint.Every(), WithoutNew: wave.Nodes}))
	b.Add(step.Step{
		ID:     wave.Name + "/switch",
		Title:  "Let " + b.TargetName() + " serve new pods on " + nodes,
		Why:    "From here on every pod that starts there is on " + b.TargetName() + "; pods that run keep their network, address and connections.",
		Wave:   wave.Name,
		Before: before,
		Actions: slices.Concat(
			joint.OnEach(wave.Nodes, joint.Untaint),
			joint.OnEach(wave.Nodes, func(node string) step.Action {
				return joint.OnNode(node, step.VerbActivate, "make "+b.Target.Conf.Active+" the CNI configuration of "+node, b.Target.Conf)
			}),
			joint.OnEach(wave.Nodes, func(node string) step.Action {
				return joint.Apply(*manifest.ProbePod(b.Change.AgentImage, node, "new"))
			}),
			joint.OnEach(wave.Nodes, func(node string) step.Action {
				return joint.Wait("wait until the new probe pod of "+node+" is ready", joint.ProbePodReady(node, "new"), 3*time.Minute)
			}),
			[]step.Action{joint.Probe("measure the paths of "+nodes+" over "+b.TargetName()+" too", step.PathSet{Old: joint.Every(), New: joint.Every()})}),
		Undo:     slices.Concat(undo, removals, evictions),
		Gate:     b.Gate("pods of both networks reach each other from and to "+nodes, false),
		Estimate: step.Duration(15*time.Second + time.Duration(len(wave.Nodes))*time.Second),
	})
}

// moveNode leaves pods that are ending to themselves: both networks carry them until verifyEmpty has seen them end.
func (b *builder) moveNode(wave joint.Wave, node string, last bool) {
	pods := b.Outlook.PerNode[node]
	title := b.TargetName() + " carries the pods of " + node
	estimate := 10*time.Second + time.Duration(pods)*2*time.Second
	if last {
		title = wave.Name + " is moved and nothing was lost"
		estimate += b.Bake()
	}
	evict := joint.Evict(node, b.Source.CNI, b.Join.Old, pods)
	evict.Pods.LeaveEnding = true
	b.Add(step.Step{
		ID:       wave.Name + "/" + node + "/move",
		Title:    "Move the pods of " + node + " to " + b.TargetName(),
		Why:      "Pods are evicted within their budgets, of each workload one at a time, and the next goes when the workload is whole again.",
		Wave:     wave.Name,
		Node:     node,
		Before:   []step.Condition{joint.ProbePodReady(node, "new")},
		Actions:  []step.Action{evict},
		After:    []step.Condition{{Kind: step.NoPods, Node: node, CIDRs: b.Join.Old, LeaveEnding: true}},
		Gate:     b.Gate(title, last),
		Estimate: step.Duration(estimate),
	})
}

// verifyEmpty waits for the last pods on the source to end, wherever they may have come from.
func (b *builder) verifyEmpty() {
	var actions []step.Action
	for _, node := range b.Nodes() {
		actions = append(actions, joint.Evict(node, b.Source.CNI, b.Join.Old, 0))
	}
	b.Add(step.Step{
		ID:       "verify/empty",
		Title:    "Check that no pod is left on " + b.Source.CNI,
		Why:      "The next step takes " + b.Source.CNI + " away, and with it the network of whatever is still there.",
		Actions:  actions,
		After:    []step.Condition{{Kind: step.NoPods, CIDRs: b.Join.Old}},
		Gate:     b.Gate("everything runs on "+b.TargetName()+" and nothing was lost", false),
		Estimate: step.Duration(15*time.Second + b.PerNode(100*time.Millisecond)),
	})
}
