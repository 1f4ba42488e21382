package surge

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// toStart bounds what starts on a node that has come: its images may have to come first.
const toStart = 5 * time.Minute

// add brings the new nodes of a wave, shut for pods, and proves them.
func (b *builder) add(wave Wave) {
	nodes, pod := joint.List(wave.New), manifest.ProbePods(b.Change.AgentImage, "new")
	join, conf := joint.Canonical(b.Join), joint.Canonical(b.Target.Conf)
	on := func(what string, condition func(node string) step.Condition) []step.Action {
		return joint.OnEach(wave.New, func(node string) step.Action {
			return joint.Wait("wait until "+what+" "+node+" is ready", condition(node), toStart)
		})
	}
	var source []step.Action
	if b.Source.HasAgent() {
		source = on(b.SourceName()+" on", b.SourceAgentOn)
	}
	actions := slices.Concat(
		b.hooked(step.VerbAdd, wave, wave.New),
		on("node", joint.NodeReady),
		on("Theseus' agent on", func(node string) step.Condition {
			return step.Condition{Is: step.PodReady{Node: node, Namespace: v1alpha1.Namespace,
				Selector: manifest.AgentSelector}}
		}),
		joint.OnEach(wave.New, func(node string) step.Action {
			return joint.OnNode(node, step.VerbJoin, "add the rules that join both networks on "+node, join)
		}),
		joint.OnEach(wave.New, func(node string) step.Action {
			return joint.Label(node, v1alpha1.LabelTarget, "true",
				"start "+b.TargetName()+" on "+node+" (set its label)")
		}),
		source,
		on(b.TargetName()+" on", b.TargetOn),
		joint.OnEach(wave.New, func(node string) step.Action {
			return joint.OnNode(node, step.VerbActivate,
				"activate "+b.Target.Conf.Active+" as the CNI configuration of "+node, conf)
		}),
		evictAll(wave.New, b.SourceName(), b.Join.Old),
		joint.OnEach(wave.New, func(node string) step.Action {
			return joint.Apply(*pod(node))
		}),
		on("the probe pod of", func(node string) step.Condition { return joint.ProbePodIn(node, "new", b.Join.New) }),
		[]step.Action{joint.Probe("measure the paths of "+nodes+" over "+b.TargetName()+" as well", everything())})
	var before []step.Condition
	for _, node := range wave.Old {
		before = append(before, b.Running(node)...)
	}
	before = append(before, b.Introduced()...)
	stop := everything()
	stop.Leaving = wave.New
	undo := slices.Concat(
		[]step.Action{joint.Probe("stop measuring the paths to and from "+nodes, stop)},
		joint.OnEach(wave.New, func(node string) step.Action { return joint.Remove(joint.ProbePod(node, "new")) }),
		b.hooked(step.VerbRemove, wave, wave.New))
	b.Add(step.Step{
		Group: wave.Name, Does: "add",
		Title: "Add " + nodes + " with " + b.TargetName(),
		Why: "The taint " + v1alpha1.TaintPending + ":NoSchedule keeps other pods off until the probes pass. " +
			b.SourceName() +
			" runs there only to reach the pods of the nodes that are not replaced yet.",
		Wave:    wave.Name,
		Before:  before,
		Actions: actions,
		Undo:    undo,
		Gate:    b.Gate("pods of both networks reach each other to and from "+nodes, true),
	})
}

// everything is all that can be measured.
func everything() step.PathSet { return step.PathSet{Old: joint.Every(), New: joint.Every()} }

func evictAll(nodes []string, network string, cidrs []string) []step.Action {
	return joint.OnEach(nodes, func(node string) step.Action { return joint.Evict(node, network, cidrs, 0) })
}

// open lets pods come to the new nodes. Taking it back moves those that came.
func (b *builder) open(wave Wave) {
	evictions := evictAll(wave.New, b.TargetName(), b.Join.New)
	for i := range evictions {
		step.Edit(&evictions[i], func(do *step.Evict) { do.Pods.LeaveDaemons = true })
	}
	var before []step.Condition
	for _, node := range wave.New {
		before = append(before, joint.ProbePodReady(node, "new"))
	}
	b.Add(step.Step{
		Group: wave.Name, Does: "open",
		Title:   "Allow pods on " + joint.List(wave.New),
		Why:     "The previous gate has tested every path to and from these nodes.",
		Wave:    wave.Name,
		Before:  before,
		Actions: joint.OnEach(wave.New, joint.Open),
		Undo:    append(joint.OnEach(wave.New, joint.Repel), evictions...),
	})
}

// drain moves the pods of some old nodes. With the first of them all of the wave are shut, so that no pod moves twice.
func (b *builder) drain(wave Wave, nodes []string, first bool) {
	pods := 0
	for _, node := range nodes {
		pods += len(b.Outlook.PerNode[node])
	}
	names := joint.List(nodes)
	s := step.Step{
		ID: wave.Name + "/" + nodes[0] + "/drain", Group: wave.Name, Does: "drain",
		Title: "Move the pods of " + names + " to other nodes",
		Why:   joint.Evicted + " Pods of DaemonSets are deleted with their node.",
		Wave:  wave.Name,
		Actions: joint.OnEach(nodes, func(node string) step.Action {
			evict := b.evict(node, pods)
			step.Edit(&evict, func(do *step.Evict) { do.Pods.LeaveEnding = true })
			return evict
		}),
		Gate: b.Gate("the pods of "+names+" are on other nodes", false),
	}
	if len(nodes) == 1 {
		s.Node = nodes[0]
	}
	for _, node := range nodes {
		s.Before = append(s.Before, joint.NodeReady(node))
		s.After = append(s.After, step.Condition{Is: step.NoPods{Node: node, CIDRs: b.Join.Old,
			LeaveEnding: true, LeaveDaemons: true}})
	}
	if first {
		s.Actions = append(joint.OnEach(wave.Old, joint.Repel), s.Actions...)
		s.Undo = joint.OnEach(wave.Old, joint.Open)
	}
	b.Add(s)
}

func (b *builder) evict(node string, pods int) step.Action {
	evict := joint.Evict(node, b.SourceName(), b.Join.Old, pods)
	step.Edit(&evict, func(do *step.Evict) { do.Pods.LeaveDaemons = true })
	return evict
}

// empty waits for the last pods of the old nodes to end. It is the last moment to go back.
func (b *builder) empty(wave Wave) {
	b.Add(step.Step{
		Group: wave.Name, Does: "empty",
		Title: "Check that no pod is left on " + joint.List(wave.Old),
		Why:   "The next step removes these nodes, with every pod that is still on them.",
		Wave:  wave.Name,
		Actions: append(joint.OnEach(wave.Old, func(node string) step.Action { return b.evict(node, 0) }),
			b.AgentsReady()),
		Gate: b.Gate("all nodes of "+wave.Name+" are drained", true),
	})
}

// remove takes the old nodes of a wave away, which nothing takes back.
func (b *builder) remove(wave Wave, noReturn bool) {
	nodes := joint.List(wave.Old)
	stop := everything()
	stop.Leaving = wave.Old
	var before []step.Condition
	var gone []step.Action
	for _, node := range wave.Old {
		ref := step.Ref{APIVersion: "v1", Kind: "Node", Name: node}
		before = append(before, step.Condition{Is: step.NoPods{Node: node, CIDRs: b.Join.Old, LeaveDaemons: true}})
		gone = append(gone, joint.Wait("wait until node "+node+" is gone", joint.Gone(ref), time.Minute))
	}
	actions := slices.Concat(
		[]step.Action{joint.Probe("stop measuring the paths to and from "+nodes, stop)},
		joint.OnEach(wave.Old, func(node string) step.Action { return joint.Remove(joint.ProbePod(node, "old")) }),
		b.hooked(step.VerbRemove, wave, wave.Old),
		joint.Together(gone))
	b.Add(step.Step{
		Group: wave.Name, Does: "remove",
		Title:    "Remove " + nodes,
		Why:      "Only pods of DaemonSets are left there. A removed node does not come back.",
		Wave:     wave.Name,
		Before:   before,
		Actions:  actions,
		Gate:     b.Gate("traffic is unaffected without "+nodes, true),
		NoReturn: noReturn,
	})
}
