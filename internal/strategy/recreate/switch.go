package recreate

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/strategy/joint"
)

// switchNodes switches the nodes of one wave after another, and moves their pods.
func (b *builder) switchNodes() {
	for i, wave := range b.Waves {
		b.switchWave(wave)
		chunks := slices.Collect(slices.Chunk(wave.Nodes, joint.MovedAtOnce))
		for j, nodes := range chunks {
			b.Move(wave, nodes, b.Source.CNI, b.TargetName(), j == len(chunks)-1, i == len(b.Waves)-1)
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
