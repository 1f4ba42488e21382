package joint

import (
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// RemoveParts deletes the source: first its workloads, together with other given objects, then the rest, so that
// workloads keep their permissions while they terminate. A namespace takes seconds to terminate; CleanSource checks
// that it is gone.
func (b *Builder) RemoveParts(others ...step.Action) []step.Action {
	var actions []step.Action
	running := func(part step.Ref) bool { return part.Kind == "DaemonSet" || part.Kind == "Deployment" }
	for _, runs := range []bool{true, false} {
		var parts []step.Action
		for _, part := range b.Source.Parts {
			if running(part) == runs {
				removal := Remove(part)
				removal.Do = step.Delete{Ref: part, LeaveEnding: part.Kind == "Namespace"}
				parts = append(parts, removal)
			}
		}
		if runs {
			parts = append(parts, others...)
		}
		actions = append(actions, Together(parts)...)
	}
	return actions
}

// SourceGone returns the conditions that the source's agents are gone; none if it has no agents.
func (b *Builder) SourceGone() []step.Condition {
	if !b.Source.HasAgent() {
		return nil
	}
	return []step.Condition{Gone(b.Source.Agent)}
}

// WaitSourceGone waits until the source's agents have terminated on every node.
func (b *Builder) WaitSourceGone() []step.Action {
	if !b.Source.HasAgent() {
		return nil
	}
	return []step.Action{Wait("wait until "+b.SourceName()+" has stopped on every node", step.Condition{
		Is: step.PodGone{Namespace: b.Source.Agent.Namespace, Selector: b.Source.Selector}}, b.Fleet(3*time.Minute))}
}

// DeleteSource deletes the source and its probe pods. It is the point of no return, unless there was one before.
func (b *Builder) DeleteSource(probed []string, noReturn bool) {
	residue := Canonical(b.SourceResidue)
	actions := OnEach(b.Nodes(), func(node string) step.Action {
		return OnNode(node, step.VerbInventory, "list the residue of "+b.SourceName()+" on "+node, residue)
	})
	actions = append(actions, Probe("measure only the paths over "+b.TargetName(), step.PathSet{New: Every()}))
	removals := OnEach(probed, func(node string) step.Action { return Remove(ProbePod(node, "old")) })
	removals = append(removals, RemoveProbeServices("old")...)
	if cession := b.Source.Cession; cession != nil {
		removals = append(removals, Remove(step.RefOf(cession.Keep)))
	}
	actions = append(actions, b.RemoveParts(removals...)...)
	actions = append(actions, b.WaitSourceGone()...)
	if cession := b.Source.Cession; cession != nil {
		actions = append(actions, Together(Backwards(cession.Rights))...)
	}
	b.Add(step.Step{
		Group: "remove", Does: "source",
		Title:    "Remove " + b.SourceName(),
		Why:      "No pod uses it any more.",
		Before:   []step.Condition{{Is: step.NoPods{CIDRs: b.Join.Old}}, Rolled(b.Target.Installation.Agent)},
		Actions:  actions,
		After:    b.SourceGone(),
		Gate:     b.Gate("traffic is unaffected without "+b.SourceName(), true),
		NoReturn: noReturn,
	})
}

// CleanSource removes the source's residue node by node.
func (b *Builder) CleanSource() {
	for i, wave := range b.Waves {
		var after []step.Condition
		for _, part := range b.Source.Parts {
			if part.Kind == "Namespace" && i == len(b.Waves)-1 {
				after = append(after, Gone(part))
			}
		}
		b.cleanNodes(wave, after)
	}
}

func (b *Builder) cleanNodes(wave Wave, after []step.Condition) {
	var actions []step.Action
	residue := Canonical(b.SourceResidue)
	if b.BeforeClean != nil {
		actions = OnEach(wave.Nodes, b.BeforeClean)
	}
	actions = slices.Concat(actions,
		OnEach(wave.Nodes, func(node string) step.Action {
			return OnNode(node, step.VerbClean, "remove the residue of "+b.SourceName()+" from "+node, residue)
		}),
		OnEach(wave.Nodes, func(node string) step.Action {
			return OnNode(node, step.VerbInventory, "list the residue on "+node+" again", residue)
		}))
	b.Add(step.Step{
		ID: "remove/clean/" + wave.Name, Group: "remove", Does: "clean",
		Title: "Remove the residue of " + b.SourceName() + " from " + List(wave.Nodes),
		Why: "Leftover interfaces, rules, routes and files can break the network that stays. " +
			"The clean-up needs no reboot.",
		Wave:    wave.Name,
		Before:  b.SourceGone(),
		Actions: actions,
		After:   after,
		Gate:    b.Gate("traffic is unaffected by the clean-up on "+List(wave.Nodes), false),
	})
}

// Finish gives the target the user's own form and removes Theseus' own objects, including the remaining probe
// pods.
func (b *Builder) Finish(probed ...string) {
	b.finalForm()
	b.tidy()
	b.End(probed, probed)
}

// End removes Theseus' own objects: the agents, and the remaining probe pods and their Services.
func (b *Builder) End(pods, services []string) {
	b.stopProbes(pods, services)
	b.leave()
}

func (b *Builder) finalForm() {
	actions := slices.Clone(b.Target.Final)
	if len(actions) == 0 {
		return
	}
	agent := b.Target.Installation.Agent
	title, matches := "Apply your manifest of "+b.TargetName()+" as it is", "From here on it matches your manifest. "
	if kept := b.Target.Kept; len(kept) > 0 {
		title = "Apply your manifest of " + b.TargetName() + ", except for " + cluster.Count(len(kept), "setting")
		matches = "From here on it matches your manifest, except for " + strings.Join(kept, " and ") +
			". Put that into the values from which you " +
			"make the manifest before you apply them again: agents with the former values would " +
			"be cut off from the others. "
	}
	why := "Until now " + b.TargetName() + " ran with Theseus' node selector and staged file names. " + matches +
		"Its agents restart a few at a time; their rules and routes stay in place."
	if b.Target.Made != nil {
		why += " The operator restarts them."
		actions = append(actions, b.made("without the node selector", b.Target.Made.Own))
	} else {
		for _, wave := range b.Waves {
			for _, nodes := range b.Groups(wave.Nodes) {
				actions = append(actions, b.restartOn(agent, nodes)...)
			}
		}
	}
	actions = append(actions, Wait("wait until "+Name(agent)+" runs as in your manifest on every node",
		Rolled(agent), b.Fleet(5*time.Minute)))
	actions = append(actions, Together(slices.Clone(b.Target.HandOver))...)
	for _, ref := range b.Target.Discard {
		actions = append(actions, Remove(ref))
	}
	b.Add(step.Step{
		Group: "finish", Does: "form",
		Title:   title,
		Why:     why,
		Before:  b.SourceGone(),
		Actions: actions,
		After:   []step.Condition{Rolled(b.Target.Installation.Agent)},
		// it counts since the first restart
		Gate: b.Gate("traffic is unaffected by your manifest of "+b.TargetName(), false),
	})
}

// restartOn restarts the agents of some nodes, with a guard on each node if the rules move to another place. During a
// restart, new pods on the node have to wait; the guards must outlast the restarts, whatever the size of the wave.
func (b *Builder) restartOn(agent step.Ref, nodes []string) []step.Action {
	restarts := OnEach(nodes, func(node string) step.Action { return Restart(agent, node) })
	if b.Target.Guard == nil {
		return restarts
	}
	guard := Canonical(b.Target.Guard)
	return slices.Concat(
		OnEach(nodes, func(node string) step.Action {
			return OnNode(node, step.VerbGuard, "copy the deny rules of "+b.TargetName()+" on "+node+
				", so that they stay in force while it restarts", guard)
		}),
		restarts,
		OnEach(nodes, func(node string) step.Action {
			return OnNode(node, step.VerbRelease, "remove the copied deny rules from "+node, guard)
		}))
}

// tidy reverts the changes that only the joint phase needed.
func (b *Builder) tidy() {
	var actions []step.Action
	if b.Target.Adoption == nil { // otherwise the reservation protects addresses that connections may still use
		actions = Backwards(b.Target.Extras)
	}
	staged := step.Residue{ConfFiles: []string{b.Target.Conf.Staged}}
	if b.Target.Conf.Active != b.Target.Installation.Capabilities.ConfName {
		staged.ConfFiles = append(staged.ConfFiles, b.Target.Conf.Active)
	}
	if folder := b.stagedIn(); folder != "" {
		staged.Paths = []string{folder}
	}
	join, files, residue := Canonical(b.Join), Canonical(staged), Canonical(b.SourceResidue)
	for _, action := range []func(node string) step.Action{
		func(node string) step.Action {
			return OnNode(node, step.VerbPart, "remove the rules that join both networks on "+node, join)
		},
		func(node string) step.Action {
			return OnNode(node, step.VerbClean, "remove staged CNI configurations from "+node, files)
		},
		func(node string) step.Action {
			return Label(node, v1alpha1.LabelTarget, nil, "remove the label "+v1alpha1.LabelTarget+" from "+node)
		},
		func(node string) step.Action {
			return OnNode(node, step.VerbInventory, "list the residue on "+node+" one last time", residue)
		},
	} {
		actions = append(actions, OnEach(b.Nodes(), action)...)
	}
	actions = append(actions, OnEach(b.Slots, func(node string) step.Action {
		return Label(node, v1alpha1.LabelSlot, nil, "remove the label "+v1alpha1.LabelSlot+" from "+node)
	})...)
	b.Add(step.Step{
		Group: "finish", Does: "tidy",
		Title:   "Remove the join rules, staged files and labels",
		Why:     "Only one network is left, so nothing of the joint phase is needed any more.",
		Before:  []step.Condition{Rolled(b.Target.Installation.Agent)},
		Actions: actions,
		Gate:    b.Gate("traffic is unaffected with "+b.TargetName()+" alone", true),
	})
}

func (b *Builder) stopProbes(pods, services []string) {
	actions := []step.Action{Probe("stop measuring", step.PathSet{})}
	var removals []step.Action
	for _, network := range services {
		for _, node := range b.Nodes() {
			if slices.Contains(pods, network) {
				removals = append(removals, Remove(ProbePod(node, network)))
			}
		}
		removals = append(removals, RemoveProbeServices(network)...)
	}
	actions = append(actions, Together(append(removals, Remove(HostProber())))...)
	if b.Source.Capabilities.Policy != cni.PolicyNone {
		// after the pods: a probe that is under way when measuring stops could reach one that is still ending
		actions = append(actions, Remove(step.RefOf(manifest.ProbePolicy())))
	}
	b.Add(step.Step{
		Group: "finish", Does: "probes",
		Title:   "Stop measuring",
		Why:     "The report keeps the measurements.",
		Actions: actions,
	})
}

func (b *Builder) leave() {
	actions := Leave(InstallAgent(b.Change.AgentImage, b.Snapshot.Kubernetes, b.Snapshot.APIServers, 0))
	// the first are the agents, which use all the others; the last changes the namespace
	Together(actions[1 : len(actions)-1])
	if b.portReserved {
		actions = append(UseAnyPort(b.Nodes()), actions...)
	}
	b.Add(step.Step{
		Group: "finish", Does: "theseus",
		Title:   "Remove Theseus' agent",
		Why:     "Only the journal stays, in namespace " + v1alpha1.Namespace + ", until you delete it.",
		Actions: actions,
	})
}
