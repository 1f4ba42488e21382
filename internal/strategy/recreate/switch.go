package recreate

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/strategy/joint"
)

// movedAtOnce is how many nodes of a wave have their pods moved together. A run can be paused between two such steps.
const movedAtOnce = 4

// switchNodes switches the nodes of one wave after another, and moves their pods.
func (b *builder) switchNodes() {
	for i, wave := range b.Waves {
		b.switchWave(wave)
		chunks := slices.Collect(slices.Chunk(wave.Nodes, movedAtOnce))
		for j, nodes := range chunks {
			b.moveNodes(wave, nodes, j == len(chunks)-1, i == len(b.Waves)-1)
		}
	}
}

func (b *builder) switchWave(wave joint.Wave) {
	var before []step.Condition
	var undo, removals, evictions []step.Action
	for _, node := range wave.Nodes {
		before = append(before, b.Running(node)...)
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

// moveNodes leaves pods that are ending to themselves, as both networks carry them; only after the last node of all it
// waits for those that have not ended yet, wherever they may have come from.
func (b *builder) moveNodes(wave joint.Wave, nodes []string, lastOfWave, lastWave bool) {
	pods := 0
	for _, node := range nodes {
		pods += b.Outlook.PerNode[node]
	}
	names := joint.List(nodes)
	s := step.Step{
		ID:    wave.Name + "/" + nodes[0] + "/move",
		Title: "Move the pods of " + names + " to " + b.TargetName(),
		Why:   "Pods are evicted within their budgets, of each workload one at a time, and the next goes when the workload is whole again.",
		Wave:  wave.Name,
		Actions: joint.OnEach(nodes, func(node string) step.Action {
			evict := joint.Evict(node, b.Source.CNI, b.Join.Old, pods)
			evict.Pods.LeaveEnding = true
			return evict
		}),
		Gate: b.Gate(b.TargetName()+" carries the pods of "+names, lastOfWave),
	}
	if len(nodes) == 1 {
		s.Node = nodes[0]
	}
	for _, node := range nodes {
		s.Before = append(s.Before, joint.ProbePodReady(node, "new"))
		s.After = append(s.After, step.Condition{Kind: step.NoPods, Node: node, CIDRs: b.Join.Old, LeaveEnding: true})
	}
	estimate := 10*time.Second + time.Duration(pods)*2*time.Second
	switch {
	case lastOfWave && lastWave:
		s.Why += " Then the last pods that are ending are waited for, as the next step takes " + b.Source.CNI + " away."
		s.Actions = append(s.Actions, joint.OnEach(b.Nodes(), func(node string) step.Action {
			rest := joint.Evict(node, b.Source.CNI, b.Join.Old, 0)
			rest.Title = "see that no pod is left on " + b.Source.CNI + " on " + node
			return rest
		})...)
		s.After = []step.Condition{{Kind: step.NoPods, CIDRs: b.Join.Old}}
		s.Gate.Title = "everything runs on " + b.TargetName() + " and nothing was lost"
		estimate += b.Bake() + b.PerNode(100*time.Millisecond)
	case lastOfWave:
		s.Gate.Title = wave.Name + " is moved and nothing was lost"
		estimate += b.Bake()
	}
	s.Estimate = step.Duration(estimate)
	b.Add(s)
}
