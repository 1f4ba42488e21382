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
		return joint.OnNode(node, step.VerbAdoptable, "look at each pod of "+node+": can it be adopted?",
			step.AdoptArgs{From: b.source, To: b.target, Skip: b.apart(node)})
	})
	b.Add(step.Step{
		Group: "joint", Does: "rehearse",
		Title:   "Make sure that every pod can be adopted",
		Why:     "What stands against it is in the pod's own interfaces, routes and plugins, where only the node's agent sees it; nothing is changed for the answer.",
		Before:  []step.Condition{joint.Rolled(b.Target.Installation.Agent)},
		Actions: actions,
	})
}

func (b *builder) apart(node string) []string {
	var names []string
	for _, pod := range b.Outlook.Apart[node] {
		names = append(names, pod.Name)
	}
	return names
}

// adoptNodes moves the pods of some nodes of a wave, together.
func (b *builder) adoptNodes(wave joint.Wave, nodes []string, last bool) {
	apart := slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return len(b.Outlook.Apart[node]) == 0 })
	b.adoptCanary(wave, nodes)
	b.adoptRest(wave, nodes)
	if b.flat() {
		return // switchAll comes after the last
	}
	b.switchNodes(wave, nodes, last && len(apart) == 0)
	if len(apart) > 0 {
		b.recreateApart(wave, apart, last)
	}
}

// addFor adds a step for some nodes of a wave, where what it needs is there on each.
func (b *builder) addFor(wave joint.Wave, nodes []string, name string, s step.Step, before ...func(node string) []step.Condition) {
	s.ID, s.Group, s.Does, s.Wave = wave.Name+"/"+nodes[0]+"/"+name, wave.Name, name, wave.Name
	if len(nodes) == 1 {
		s.Node = nodes[0]
	}
	for _, node := range nodes {
		for _, conditions := range before {
			s.Before = append(s.Before, conditions(node)...)
		}
	}
	b.Add(s)
}

func ready(network string) func(node string) []step.Condition {
	return func(node string) []step.Condition { return []step.Condition{joint.ProbePodReady(node, network)} }
}

func (b *builder) adoptCanary(wave joint.Wave, nodes []string) {
	b.addFor(wave, nodes, "canary", step.Step{
		Title: "Adopt the probe pod of " + joint.List(nodes),
		Why:   "It is measured from and to every node, Service, name and host while it moves: a way counts as proven when traffic has crossed it. No other pod moves before.",
		Actions: joint.OnEach(nodes, func(node string) step.Action {
			return b.to(node, "move the probe pod of "+node+" to "+b.TargetName(), len(nodes), []string{canary(node)}, nil)
		}),
		Undo: joint.OnEach(nodes, func(node string) step.Action {
			return b.back(node, "move the probe pod of "+node+" back to "+b.Source.CNI, len(nodes), []string{canary(node)}, nil)
		}),
		Gate: b.Gate("nobody noticed that "+b.TargetName()+" carries the probe pod of "+joint.List(nodes), false),
	}, b.Running, ready("old"))
}

func (b *builder) adoptRest(wave joint.Wave, nodes []string) {
	b.addFor(wave, nodes, "adopt", step.Step{
		Title: "Adopt the pods of " + joint.List(nodes),
		Why:   "They go on to run, with their addresses and their connections; pods that start meanwhile come up on " + b.Source.CNI + " and are adopted when the runtime is switched.",
		Actions: joint.OnEach(nodes, func(node string) step.Action {
			return b.to(node, "move the pods of "+node+" to "+b.TargetName(), len(nodes), nil, b.apart(node))
		}),
		Undo: joint.OnEach(nodes, func(node string) step.Action {
			return b.back(node, "move the pods of "+node+" back to "+b.Source.CNI, len(nodes), nil, []string{canary(node)})
		}),
		Gate: b.Gate("nobody noticed that "+b.TargetName()+" carries the pods of "+joint.List(nodes), false),
	}, b.Running)
}

// switchNodes lets the target serve new pods. In between it gives no address at all: a pod that starts just then
// waits for a moment, and none gets an address that is taken by a pod which the target does not know yet.
func (b *builder) switchNodes(wave joint.Wave, nodes []string, last bool) {
	names := joint.List(nodes)
	title := "pods made by either network reach each other from and to " + names
	if last {
		title = wave.Name + " is adopted and nothing was lost"
	}
	b.addFor(wave, nodes, "switch", step.Step{
		Title: "Let " + b.TargetName() + " serve new pods on " + names,
		Why: "First the runtime asks " + b.TargetName() + ", which has no address to give there; then what " + b.Source.CNI +
			" made until that moment is adopted; only then is every address that is taken known, and new pods get others.",
		Actions: slices.Concat(b.activate(nodes), b.open(nodes), []step.Action{
			joint.Probe("measure a pod of "+names+" that "+b.TargetName()+" made, too", step.PathSet{Old: joint.Every(), New: joint.Every()})}),
		Undo: slices.Concat([]step.Action{
			joint.Probe("stop measuring the new probe pod of "+names, step.PathSet{Old: joint.Every(), New: joint.Every(), WithoutNew: nodes})},
			b.shut(nodes), b.home(nodes), b.deactivate(nodes)),
		Gate: b.Gate(title, last),
	}, b.Running)
}

// activate lets the runtime ask the target, and takes over what the source made until then.
func (b *builder) activate(nodes []string) []step.Action {
	return append(
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.OnNode(node, step.VerbActivate, "make "+b.Target.Conf.Active+" the CNI configuration of "+node, b.Target.Conf)
		}),
		joint.OnEach(nodes, func(node string) step.Action {
			return b.to(node, "move to "+b.TargetName()+" what "+b.Source.CNI+" made on "+node+" until then", len(nodes), nil, b.apart(node))
		})...)
}

// home moves all pods back to the source, which then knows their addresses.
func (b *builder) home(nodes []string) []step.Action {
	return joint.OnEach(nodes, func(node string) step.Action {
		return b.back(node, "move the pods of "+node+" back to "+b.Source.CNI+", those that "+b.TargetName()+" made too", len(nodes), nil, []string{canary(node)})
	})
}

// deactivate lets the runtime ask the source again.
func (b *builder) deactivate(nodes []string) []step.Action {
	return joint.OnEach(nodes, func(node string) step.Action {
		return joint.OnNode(node, step.VerbDeactivate, "make "+b.Source.Capabilities.ConfName+" the CNI configuration of "+node+" again", b.Target.Conf)
	})
}

// open lets the target give addresses, and waits for a pod that got one.
func (b *builder) open(nodes []string) []step.Action {
	return slices.Concat(
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.Label(node, v1alpha1.LabelAdopted, b.adopted[node], "let "+b.TargetName()+" give addresses on "+node)
		}),
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.Apply(*manifest.ProbePod(b.Change.AgentImage, node, "new"))
		}),
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.Wait("wait until the new probe pod of "+node+" is ready", joint.ProbePodReady(node, "new"), 3*time.Minute)
		}))
}

// shut takes open back.
func (b *builder) shut(nodes []string) []step.Action {
	return append(
		joint.OnEach(nodes, func(node string) step.Action { return joint.Remove(joint.ProbePod(node, "new")) }),
		joint.OnEach(nodes, func(node string) step.Action {
			return joint.Label(node, v1alpha1.LabelAdopted, nil, "let "+b.TargetName()+" give no address on "+node+" any more")
		})...)
}

// recreateApart moves the pods that cannot be adopted as the strategy recreate would.
func (b *builder) recreateApart(wave joint.Wave, nodes []string, last bool) {
	evictions := joint.OnEach(nodes, func(node string) step.Action {
		names := b.apart(node)
		evict := joint.Evict(node, b.Source.CNI, b.Join.Old, len(names))
		evict.Pods.Names = names
		evict.Title = "evict the pods of " + node + " that cannot be adopted: " + joint.List(names)
		return evict
	})
	b.addFor(wave, nodes, "recreate", step.Step{
		Title:   "Create again the pods of " + joint.List(nodes) + " that cannot be adopted",
		Why:     "Each has a reason, named above. They are evicted within their budgets, of each workload one at a time.",
		Actions: evictions,
		Gate:    b.Gate(b.TargetName()+" carries all pods of "+joint.List(nodes), last),
	}, ready("new"))
}
