package recreate

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

// finish hands the target over in the user's own form and takes Theseus' own parts away.
func (b *builder) finish() {
	b.finalForm()
	b.tidy()
	b.stopProbes()
	b.leave()
}

func (b *builder) finalForm() {
	actions := slices.Clone(b.Target.Final)
	if len(actions) == 0 {
		return
	}
	agent := b.Target.Installation.Agent
	rounds := 0
	for _, wave := range b.Waves {
		for nodes := range slices.Chunk(wave.Nodes, restartsAtOnce) {
			rounds++
			actions = append(actions, b.restartOn(agent, nodes)...)
		}
	}
	actions = append(actions, wait("wait until "+name(agent)+" runs its own form on every node", rolled(agent), b.fleet(5*time.Minute)))
	actions = append(actions, b.Target.HandOver...)
	b.add(step.Step{
		ID:       "finish/form",
		Title:    "Give " + b.target() + " its own form",
		Why:      "From here on it is what the user's own manifest installs, without labels or staged names; its agents restart one by one, their rules and routes stay.",
		Before:   []step.Condition{gone(b.Source.Agent)},
		Actions:  actions,
		After:    []step.Condition{rolled(b.Target.Installation.Agent)},
		Gate:     b.gate(b.target()+" in its own form loses nothing", true),
		Estimate: step.Duration(10*time.Second + b.bake() + time.Duration(rounds)*15*time.Second),
	})
}

// restartsAtOnce is how many agents of a wave restart together: while one does, pods that start on its node wait.
// Their guards must outlast it, whatever the size of the wave.
const restartsAtOnce = 4

// restartOn restarts the agents of some nodes, each guarded where its rules move.
func (b *builder) restartOn(agent step.Ref, nodes []string) []step.Action {
	restarts := onEach(nodes, func(node string) step.Action { return restart(agent, node) })
	guard := b.Target.Guard
	if guard == nil {
		return restarts
	}
	return slices.Concat(
		onEach(nodes, func(node string) step.Action {
			return onNode(node, step.VerbGuard, "keep denied on "+node+" what "+b.target()+" denies while it restarts", guard)
		}),
		restarts,
		onEach(nodes, func(node string) step.Action {
			return onNode(node, step.VerbRelease, "leave policy on "+node+" to "+b.target()+" again", guard)
		}))
}

// tidy takes back what only the joint phase needed.
func (b *builder) tidy() {
	actions := backwards(b.Target.Extras)
	staged := step.Residue{ConfFiles: []string{b.Target.Conf.Staged}}
	if b.Target.Conf.Active != b.Target.Installation.Capabilities.ConfName {
		staged.ConfFiles = append(staged.ConfFiles, b.Target.Conf.Active)
	}
	for _, action := range []func(node string) step.Action{
		func(node string) step.Action {
			return onNode(node, step.VerbPart, "take the rules that joined the networks off "+node, b.join)
		},
		func(node string) step.Action {
			return onNode(node, step.VerbClean, "remove staged configurations from "+node, staged)
		},
		func(node string) step.Action {
			return labelNode(node, nil, "remove the label "+v1alpha1.LabelTarget+" from "+node)
		},
		func(node string) step.Action {
			return onNode(node, step.VerbInventory, "take stock one last time on "+node, b.SourceResidue)
		},
	} {
		actions = append(actions, onEach(b.nodes(), action)...)
	}
	b.add(step.Step{
		ID:       "finish/tidy",
		Title:    "Part the networks",
		Why:      "There is one network again, and nothing of the joint phase is needed any more.",
		Before:   []step.Condition{rolled(b.Target.Installation.Agent)},
		Actions:  actions,
		Gate:     b.gate(b.target()+" alone loses nothing", true),
		Estimate: step.Duration(5*time.Second + b.bake() + b.perNode(6*time.Second)),
	})
}

func (b *builder) stopProbes() {
	actions := []step.Action{probe("stop measuring", step.PathSet{})}
	removals := onEach(b.nodes(), func(node string) step.Action { return remove(probePod(node, "new")) })
	removals = append(removals, remove(step.Ref{APIVersion: "v1", Kind: "Service",
		Namespace: v1alpha1.Namespace, Name: manifest.ProbeServiceName("new")}))
	if b.Source.Capabilities.Policy != cni.PolicyNone {
		removals = append(removals, remove(step.RefOf(manifest.ProbePolicy())))
	}
	actions = append(actions, beside(removals)...)
	b.add(step.Step{
		ID:       "finish/probes",
		Title:    "Stop measuring",
		Why:      "What was measured is in the report.",
		Actions:  actions,
		Estimate: step.Duration(5*time.Second + b.perNode(time.Second)),
	})
}

func (b *builder) leave() {
	actions := removeTheseus(manifest.Agent(b.Change.AgentImage), manifest.CRDs())
	beside(actions[1:]) // the first are the agents, which use all the others
	b.add(step.Step{
		ID:       "finish/theseus",
		Title:    "Remove Theseus' agent",
		Why:      "Only the journal stays, in namespace " + v1alpha1.Namespace + ", until somebody deletes it.",
		Actions:  actions,
		Estimate: step.Duration(10 * time.Second),
	})
}
