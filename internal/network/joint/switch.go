package joint

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

// KeepOff makes new pods prefer switched nodes, so that few pods move twice.
func (b *Builder) KeepOff() {
	b.Add(step.Step{
		Group: "switch", Does: "prefer",
		Title: "Steer new pods to switched nodes",
		Why: "An evicted pod should come back on the new network. The taint is soft (PreferNoSchedule), so " +
			"it never keeps a pod pending.",
		Before:  []step.Condition{Rolled(b.Target.Installation.Agent)},
		Actions: OnEach(b.Nodes(), Taint),
		Undo:    OnEach(b.Nodes(), Untaint),
	})
}

// SwitchNodes switches the nodes wave by wave, with additional conditions, and moves their pods. A wave ends when the
// target's agents are ready on all nodes. An agent that fails after its node was switched leaves routes and rules
// unchanged, so probes do not notice; the failure would only show when the agent restarts, when a rollback may be
// impossible.
func (b *Builder) SwitchNodes(waves []Wave, before ...step.Condition) {
	for i, wave := range waves {
		b.switchWave(wave, slices.Clone(before))
		groups := b.Groups(wave.Nodes)
		for j, nodes := range groups {
			var then []step.Action
			last := j == len(groups)-1
			if last {
				then = []step.Action{b.AgentsReady()}
			}
			b.Move(wave, nodes, b.SourceName(), b.TargetName(), last, i == len(waves)-1, then...)
		}
	}
}

func (b *Builder) switchWave(wave Wave, before []step.Condition) {
	pod, conf := manifest.ProbePods(b.Change.AgentImage, "new"), Canonical(b.Target.Conf)
	for _, node := range wave.Nodes {
		before = append(before, b.Running(node)...)
	}
	before = append(before, b.Introduced()...)
	nodes := List(wave.Nodes)
	b.Add(step.Step{
		Group: wave.Name, Does: "switch",
		Title: "Use " + b.TargetName() + " for new pods on " + nodes,
		Why: "From here on, every pod that starts there is on " + b.TargetName() +
			". Running pods keep their network, addresses and connections.",
		Wave:   wave.Name,
		Before: before,
		Actions: slices.Concat(
			OnEach(wave.Nodes, Untaint),
			OnEach(wave.Nodes, func(node string) step.Action {
				return OnNode(node, step.VerbActivate,
					"activate "+b.Target.Conf.Active+" as the CNI configuration of "+node, conf)
			}),
			OnEach(wave.Nodes, func(node string) step.Action {
				return Apply(*pod(node))
			}),
			OnEach(wave.Nodes, func(node string) step.Action {
				return Wait("wait until the new probe pod of "+node+" is ready",
					ProbePodIn(node, "new", b.Join.New), 3*time.Minute)
			}),
			[]step.Action{Probe("measure the paths of "+nodes+" over "+b.TargetName()+" as well",
				step.PathSet{Old: Every(), New: Every()})}),
		Undo: slices.Concat(
			OnEach(wave.Nodes, func(node string) step.Action {
				return OnNode(node, step.VerbDeactivate, "activate "+b.Source.Capabilities.ConfName+
					" as the CNI configuration of "+node+" again", conf)
			}),
			[]step.Action{Probe("stop measuring the new probe pods of "+nodes,
				step.PathSet{Old: Every(), New: Every(), WithoutNew: wave.Nodes})},
			OnEach(wave.Nodes, func(node string) step.Action { return Remove(ProbePod(node, "new")) }),
			OnEach(wave.Nodes, func(node string) step.Action {
				return Evict(node, b.TargetName(), b.Join.New, len(b.Outlook.PerNode[node]))
			})),
		Gate: b.Gate("pods of both networks reach each other to and from "+nodes, false),
	})
}
