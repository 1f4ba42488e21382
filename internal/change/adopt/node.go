package adopt

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// rehearse lets every agent say what it would refuse, before anything is moved.
func (b *builder) rehearse() {
	actions := joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.OnNode(node, step.VerbAdoptable, "check whether each pod of "+node+" can be adopted",
			step.AdoptArgs{From: b.source, To: b.target, Skip: b.unadoptable(node)})
	})
	b.Add(step.Step{
		Group: "joint", Does: "rehearse",
		Title: "Check that every pod can be adopted",
		Why: "Only the agent on the node sees the interfaces, routes and plugins of a pod, which can rule out " +
			"its adoption. This step changes nothing.",
		Before:  []step.Condition{joint.Rolled(b.Target.Installation.Agent)},
		Actions: actions,
	})
}

func (b *builder) unadoptable(node string) []string {
	var names []string
	for _, pod := range b.Outlook.Unadoptable[node] {
		names = append(names, pod.Name)
	}
	return names
}

// adoptNodes moves the pods of some nodes of a wave, together.
func (b *builder) adoptNodes(wave joint.Wave, nodes []string, last bool) {
	unadoptable := slices.DeleteFunc(slices.Clone(nodes), func(node string) bool {
		return len(b.Outlook.Unadoptable[node]) == 0
	})
	b.adoptCanary(wave, nodes)
	b.adoptRest(wave, nodes)
	if b.flat() {
		return // switchAll comes after the last
	}
	b.switchNodes(wave, nodes, last && len(unadoptable) == 0)
	if len(unadoptable) > 0 {
		b.recreateUnadoptable(wave, unadoptable, last)
	}
}

// addFor adds a step for some nodes of a wave, where what it needs is there on each.
func (b *builder) addFor(wave joint.Wave, nodes []string, name string, s step.Step,
	before ...func(node string) []step.Condition) {
	s.ID, s.Group, s.Does, s.Wave = wave.Name+"/"+nodes[0]+"/"+name, wave.Name, name, wave.Name
	if len(nodes) == 1 {
		s.Node = nodes[0]
	}
	var all [][]step.Condition
	for _, node := range nodes {
		for _, conditions := range before {
			all = append(all, conditions(node))
		}
	}
	s.Before = slices.Concat(all...)
	b.Add(s)
}

func ready(network string) func(node string) []step.Condition {
	return func(node string) []step.Condition { return []step.Condition{joint.ProbePodReady(node, network)} }
}

func (b *builder) adoptCanary(wave joint.Wave, nodes []string) {
	sideBySide := b.sideBySide(nodes)
	b.addFor(wave, nodes, "canary", step.Step{
		Title: "Adopt the probe pod of " + joint.List(nodes),
		Why: "Probes test every path to and from this pod (nodes, Services, names, hosts) while it moves. No other " +
			"pod of the node moves before these paths work.",
		Actions: joint.OnEach(nodes, func(node string) step.Action {
			return b.to(node, "move the probe pod of "+node+" to "+b.TargetName(), sideBySide,
				[]string{canary(node)}, nil)
		}),
		Undo: joint.OnEach(nodes, func(node string) step.Action {
			return b.back(node, "move the probe pod of "+node+" back to "+b.SourceName(), sideBySide,
				[]string{canary(node)}, nil)
		}),
		Gate: b.Gate("traffic is unaffected by the move of the probe pod of "+joint.List(nodes), false),
	}, b.Running, ready("old"))
}

func (b *builder) adoptRest(wave joint.Wave, nodes []string) {
	sideBySide := b.sideBySide(nodes)
	b.addFor(wave, nodes, "adopt", step.Step{
		Title: "Adopt the pods of " + joint.List(nodes),
		Why: "The pods keep running, with their addresses and connections. Pods that start in the meantime are " +
			"still on " + b.SourceName() + "; Theseus adopts them when it switches the runtime.",
		Actions: joint.OnEach(nodes, func(node string) step.Action {
			return b.to(node, "move the pods of "+node+" to "+b.TargetName(), sideBySide, nil, b.unadoptable(node))
		}),
		Undo: joint.OnEach(nodes, func(node string) step.Action {
			return b.back(node, "move the pods of "+node+" back to "+b.SourceName(), sideBySide,
				nil, []string{canary(node)})
		}),
		Gate: b.Gate("traffic is unaffected by the move of the pods of "+joint.List(nodes), false),
	}, b.Running)
}

// switchNodes lets the target serve new pods. In between it gives no address at all: a pod that starts just then
// waits for a moment, and none gets an address that is taken by a pod which the target does not know yet.
func (b *builder) switchNodes(wave joint.Wave, nodes []string, last bool) {
	names := joint.List(nodes)
	title := "pods of both networks reach each other to and from " + names
	if last {
		title = "all pods of " + wave.Name + " are adopted"
	}
	b.addFor(wave, nodes, "switch", step.Step{
		Title: "Use " + b.TargetName() + " for new pods on " + names,
		Why: "First, the runtime uses " + b.TargetName() + ", which assigns no addresses there yet, so new pods " +
			"wait. Then Theseus adopts the pods that " + b.SourceName() +
			" started in the meantime. Only then does " + b.TargetName() +
			" know every address in use, and assign free ones to new pods.",
		Actions: slices.Concat(b.activate(nodes), b.open(nodes), []step.Action{
			joint.Probe("measure the new probe pod of "+names+" as well",
				step.PathSet{Old: joint.Every(), New: joint.Every()})}),
		Undo: slices.Concat([]step.Action{
			joint.Probe("stop measuring the new probe pod of "+names,
				step.PathSet{Old: joint.Every(), New: joint.Every(), WithoutNew: nodes})},
			b.close(nodes), b.allBack(nodes), b.deactivate(nodes)),
		Gate: b.Gate(title, last),
	}, b.Running)
}

// activate lets the runtime ask the target, and takes over what the source made until then.
func (b *builder) activate(nodes []string) []step.Action {
	conf, sideBySide := joint.Canonical(b.Target.Conf), b.sideBySide(nodes)
	return append(
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.OnNode(node, step.VerbActivate,
				"activate "+b.Target.Conf.Active+" as the CNI configuration of "+node, conf)
		}),
		joint.OnEach(nodes, func(node string) step.Action {
			return b.to(node, "move the pods that started on "+node+" in the meantime to "+b.TargetName(),
				sideBySide, nil, b.unadoptable(node))
		})...)
}

// allBack moves all pods back to the source, which then knows their addresses.
func (b *builder) allBack(nodes []string) []step.Action {
	sideBySide := b.sideBySide(nodes)
	return joint.OnEach(nodes, func(node string) step.Action {
		return b.back(node, "move all pods of "+node+" back to "+b.SourceName()+", including those that started on "+
			b.TargetName(), sideBySide, nil, []string{canary(node)})
	})
}

// deactivate lets the runtime ask the source again.
func (b *builder) deactivate(nodes []string) []step.Action {
	conf := joint.Canonical(b.Target.Conf)
	return joint.OnEach(nodes, func(node string) step.Action {
		return joint.OnNode(node, step.VerbDeactivate, "activate "+b.Source.Capabilities.ConfName+
			" as the CNI configuration of "+node+" again", conf)
	})
}

// open lets the target give addresses, and waits for a pod that got one.
func (b *builder) open(nodes []string) []step.Action {
	pod := manifest.ProbePods(b.Change.AgentImage, "new")
	return slices.Concat(
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.Label(node, v1alpha1.LabelAdopted, b.adopted[node],
				"let "+b.TargetName()+" assign addresses on "+node)
		}),
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.Apply(*pod(node))
		}),
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.Wait("wait until the new probe pod of "+node+" is ready",
				joint.ProbePodReady(node, "new"), 3*time.Minute)
		}))
}

// close takes open back.
func (b *builder) close(nodes []string) []step.Action {
	return append(
		joint.OnEach(nodes, func(node string) step.Action { return joint.Remove(joint.ProbePod(node, "new")) }),
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.Label(node, v1alpha1.LabelAdopted, nil,
				"stop "+b.TargetName()+" from assigning addresses on "+node)
		})...)
}

// recreateUnadoptable moves the pods that cannot be adopted as the strategy recreate would.
func (b *builder) recreateUnadoptable(wave joint.Wave, nodes []string, last bool) {
	evictions := joint.OnEach(nodes, func(node string) step.Action {
		names := b.unadoptable(node)
		evict := joint.Evict(node, b.SourceName(), b.Join.Old, len(names))
		step.Edit(&evict, func(do *step.Evict) { do.Pods.Names = names })
		evict.Title = "evict the pods of " + node + " that cannot be adopted: " + joint.List(names)
		return evict
	})
	b.addFor(wave, nodes, "recreate", step.Step{
		Title:   "Recreate the pods of " + joint.List(nodes) + " that cannot be adopted",
		Why:     "The list of workloads above gives the reasons. " + joint.Evicted,
		Actions: evictions,
		Gate:    b.Gate(b.TargetName()+" carries all pods of "+joint.List(nodes), last),
	}, ready("new"))
}
