package recreate

import (
	"time"

	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/strategy/joint"
)

// switchNodes moves one node after another, wave by wave.
func (b *builder) switchNodes() {
	for w, wave := range b.Waves {
		for i, node := range wave.Nodes {
			b.switchNode(wave, node)
			// After the last wave comes verifyEmpty, whose gate watches as long.
			b.moveNode(wave, node, i == len(wave.Nodes)-1 && w < len(b.Waves)-1)
		}
	}
	b.verifyEmpty()
}

func (b *builder) switchNode(wave joint.Wave, node string) {
	pods := b.Outlook.PerNode[node]
	b.Add(step.Step{
		ID:     wave.Name + "/" + node + "/switch",
		Title:  "Let " + b.TargetName() + " serve new pods on " + node,
		Why:    "From here on every pod that starts on this node is on " + b.TargetName() + "; pods that run keep their network, address and connections.",
		Wave:   wave.Name,
		Node:   node,
		Before: []step.Condition{joint.NodeReady(node), b.SourceOn(node), b.TargetOn(node)},
		Actions: []step.Action{
			joint.Untaint(node),
			joint.OnNode(node, step.VerbActivate, "make "+b.Target.Conf.Active+" the CNI configuration of "+node, b.Target.Conf),
			joint.Apply(*manifest.ProbePod(b.Change.AgentImage, node, "new")),
			joint.Wait("wait until the new probe pod of "+node+" is ready", joint.ProbePodReady(node, "new"), 3*time.Minute),
			joint.Probe("measure the paths of "+node+" over "+b.TargetName()+" too", step.PathSet{Old: joint.Every(), New: joint.Every()}),
		},
		Undo: []step.Action{
			joint.OnNode(node, step.VerbDeactivate, "make "+b.Source.Capabilities.ConfName+" the CNI configuration of "+node+" again", b.Target.Conf),
			joint.Probe("stop measuring the new probe pod of "+node, step.PathSet{Old: joint.Every(), New: joint.Every(), WithoutNew: []string{node}}),
			joint.Remove(joint.ProbePod(node, "new")),
			joint.Evict(node, b.TargetName(), b.Join.New, pods),
		},
		Gate:     b.Gate("pods of both networks reach each other from and to "+node, false),
		Estimate: step.Duration(15 * time.Second),
	})
}

func (b *builder) moveNode(wave joint.Wave, node string, last bool) {
	pods := b.Outlook.PerNode[node]
	title := b.TargetName() + " carries the pods of " + node
	estimate := 15*time.Second + time.Duration(pods)*3*time.Second
	if last {
		title = wave.Name + " is moved and nothing was lost"
		estimate += b.Bake()
	}
	b.Add(step.Step{
		ID:     wave.Name + "/" + node + "/move",
		Title:  "Move the pods of " + node + " to " + b.TargetName(),
		Why:    "Pods are evicted within their budgets, of each workload one at a time, and the next goes when the workload is whole again.",
		Wave:   wave.Name,
		Node:   node,
		Before: []step.Condition{joint.ProbePodReady(node, "new")},
		Actions: []step.Action{
			joint.Evict(node, b.Source.CNI, b.Join.Old, pods),
		},
		After:    []step.Condition{{Kind: step.NoPods, Node: node, CIDRs: b.Join.Old}},
		Gate:     b.Gate(title, last),
		Estimate: step.Duration(estimate),
	})
}

// verifyEmpty makes sure that nothing is left on the source, wherever it may have come from.
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
		Gate:     b.Gate("everything runs on "+b.TargetName()+" and nothing was lost", true),
		Estimate: step.Duration(5*time.Second + b.Bake() + b.PerNode(100*time.Millisecond)),
	})
}
