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
	for _, node := range b.nodes() {
		restart := restart(agent, node)
		if guard := b.Target.Guard; guard != nil {
			actions = append(actions,
				onNode(node, step.VerbGuard, "keep denied on "+node+" what "+b.target()+" denies while it restarts", guard),
				restart,
				onNode(node, step.VerbRelease, "leave policy on "+node+" to "+b.target()+" again", guard))
			continue
		}
		actions = append(actions, restart)
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
		Estimate: step.Duration(10*time.Second + b.bake() + b.perNode(12*time.Second)),
	})
}

// tidy takes back what only the joint phase needed.
func (b *builder) tidy() {
	actions := backwards(b.Target.Extras)
	staged := step.Residue{ConfFiles: []string{b.Target.Conf.Staged}}
	if b.Target.Conf.Active != b.Target.Installation.Capabilities.ConfName {
		staged.ConfFiles = append(staged.ConfFiles, b.Target.Conf.Active)
	}
	for _, node := range b.nodes() {
		actions = append(actions,
			onNode(node, step.VerbPart, "take the rules that joined the networks off "+node, b.join),
			onNode(node, step.VerbClean, "remove staged configurations from "+node, staged),
			labelNode(node, nil, "remove the label "+v1alpha1.LabelTarget+" from "+node),
			onNode(node, step.VerbInventory, "take stock one last time on "+node, b.SourceResidue))
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
	for _, node := range b.nodes() {
		actions = append(actions, remove(probePod(node, "new")))
	}
	actions = append(actions, remove(step.Ref{APIVersion: "v1", Kind: "Service",
		Namespace: v1alpha1.Namespace, Name: manifest.ProbeServiceName("new")}))
	if b.Source.Capabilities.Policy != cni.PolicyNone {
		actions = append(actions, remove(step.RefOf(manifest.ProbePolicy())))
	}
	b.add(step.Step{
		ID:       "finish/probes",
		Title:    "Stop measuring",
		Why:      "What was measured is in the report.",
		Actions:  actions,
		Estimate: step.Duration(5*time.Second + b.perNode(time.Second)),
	})
}

func (b *builder) leave() {
	b.add(step.Step{
		ID:       "finish/theseus",
		Title:    "Remove Theseus' agent",
		Why:      "Only the journal stays, in namespace " + v1alpha1.Namespace + ", until somebody deletes it.",
		Actions:  removeTheseus(manifest.Agent(b.Change.AgentImage), manifest.CRDs()),
		Estimate: step.Duration(10 * time.Second),
	})
}
