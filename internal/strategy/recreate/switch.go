package recreate

import (
	"time"

	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
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

func (b *builder) switchNode(wave Wave, node string) {
	pods := b.OldPods[node]
	b.add(step.Step{
		ID:     wave.Name + "/" + node + "/switch",
		Title:  "Let " + b.target() + " serve new pods on " + node,
		Why:    "From here on every pod that starts on this node is on " + b.target() + "; pods that run keep their network, address and connections.",
		Wave:   wave.Name,
		Node:   node,
		Before: []step.Condition{nodeReady(node), b.sourceOn(node), b.targetOn(node)},
		Actions: []step.Action{
			untaint(node),
			onNode(node, step.VerbActivate, "make "+b.Target.Conf.Active+" the CNI configuration of "+node, b.Target.Conf),
			apply(*manifest.ProbePod(b.Change.AgentImage, node, "new")),
			wait("wait until the new probe pod of "+node+" is ready", probePodReady(node, "new"), 3*time.Minute),
			probe("measure the paths of "+node+" over "+b.target()+" too", step.PathSet{Old: every(), New: every()}),
		},
		Undo: []step.Action{
			onNode(node, step.VerbDeactivate, "make "+b.Source.Capabilities.ConfName+" the CNI configuration of "+node+" again", b.Target.Conf),
			probe("stop measuring the new probe pod of "+node, step.PathSet{Old: every(), New: every(), WithoutNew: []string{node}}),
			remove(probePod(node, "new")),
			evict(node, b.target(), b.join.New, pods),
		},
		Gate:     b.gate("pods of both networks reach each other from and to "+node, false),
		Estimate: step.Duration(15 * time.Second),
	})
}

func (b *builder) moveNode(wave Wave, node string, last bool) {
	pods := b.OldPods[node]
	title := b.target() + " carries the pods of " + node
	estimate := 15*time.Second + time.Duration(pods)*3*time.Second
	if last {
		title = wave.Name + " is moved and nothing was lost"
		estimate += b.bake()
	}
	b.add(step.Step{
		ID:     wave.Name + "/" + node + "/move",
		Title:  "Move the pods of " + node + " to " + b.target(),
		Why:    "Pods are evicted within their budgets, of each workload one at a time, and the next goes when the workload is whole again.",
		Wave:   wave.Name,
		Node:   node,
		Before: []step.Condition{probePodReady(node, "new")},
		Actions: []step.Action{
			evict(node, b.Source.CNI, b.join.Old, pods),
		},
		After:    []step.Condition{{Kind: step.NoPods, Node: node, CIDRs: b.join.Old}},
		Gate:     b.gate(title, last),
		Estimate: step.Duration(estimate),
	})
}

// verifyEmpty makes sure that nothing is left on the source, wherever it may have come from.
func (b *builder) verifyEmpty() {
	var actions []step.Action
	for _, node := range b.nodes() {
		actions = append(actions, evict(node, b.Source.CNI, b.join.Old, 0))
	}
	b.add(step.Step{
		ID:       "verify/empty",
		Title:    "Check that no pod is left on " + b.Source.CNI,
		Why:      "The next step takes " + b.Source.CNI + " away, and with it the network of whatever is still there.",
		Actions:  actions,
		After:    []step.Condition{{Kind: step.NoPods, CIDRs: b.join.Old}},
		Gate:     b.gate("everything runs on "+b.target()+" and nothing was lost", true),
		Estimate: step.Duration(5*time.Second + b.bake() + b.perNode(100*time.Millisecond)),
	})
}
