package recreate

import (
	"time"

	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

// removeSource takes the source away: the point of no return, then node by node what it leaves behind.
func (b *builder) removeSource() {
	b.deleteSource()
	for _, wave := range b.Waves {
		b.cleanNodes(wave)
	}
}

func (b *builder) deleteSource() {
	actions := onEach(b.nodes(), func(node string) step.Action {
		return onNode(node, step.VerbInventory, "take stock of what "+b.Source.CNI+" left on "+node, b.SourceResidue)
	})
	actions = append(actions, probe("measure over "+b.target()+" alone", step.PathSet{New: every()}))
	removals := onEach(b.nodes(), func(node string) step.Action { return remove(probePod(node, "old")) })
	removals = append(removals, remove(step.Ref{APIVersion: "v1", Kind: "Service",
		Namespace: manifest.Namespace().GetName(), Name: manifest.ProbeServiceName("old")}))
	actions = append(actions, beside(removals)...)
	// What runs goes first, with the rights that it has; then all the rest.
	running := func(part step.Ref) bool { return part.Kind == "DaemonSet" || part.Kind == "Deployment" }
	for _, runs := range []bool{true, false} {
		var parts []step.Action
		for _, part := range b.Source.Parts {
			if running(part) == runs {
				parts = append(parts, remove(part))
			}
		}
		actions = append(actions, beside(parts)...)
	}
	actions = append(actions, wait("wait until "+b.Source.CNI+" runs on no node", step.Condition{
		Kind: step.PodGone, Namespace: b.Source.Agent.Namespace, Selector: b.Source.Selector}, b.fleet(3*time.Minute)))
	b.add(step.Step{
		ID:       "remove/source",
		Title:    "Remove " + b.Source.CNI,
		Why:      "No pod uses it any more.",
		Before:   []step.Condition{{Kind: step.NoPods, CIDRs: b.join.Old}},
		Actions:  actions,
		After:    []step.Condition{gone(b.Source.Agent)},
		Gate:     b.gate("nothing misses "+b.Source.CNI, true),
		NoReturn: true,
		Estimate: step.Duration(15*time.Second + b.bake() + b.perNode(2*time.Second)),
	})
}

func (b *builder) cleanNodes(wave Wave) {
	actions := append(
		onEach(wave.Nodes, func(node string) step.Action {
			return onNode(node, step.VerbClean, "clean "+node+" of "+b.Source.CNI, b.SourceResidue)
		}),
		onEach(wave.Nodes, func(node string) step.Action {
			return onNode(node, step.VerbInventory, "take stock again on "+node, b.SourceResidue)
		})...)
	b.add(step.Step{
		ID:       "remove/clean/" + wave.Name,
		Title:    "Clean " + list(wave.Nodes) + " of " + b.Source.CNI,
		Why:      "Interfaces, rules, routes and files that outlive a network are what breaks the next one; none of this needs a reboot.",
		Wave:     wave.Name,
		Before:   []step.Condition{gone(b.Source.Agent)},
		Actions:  actions,
		Gate:     b.gate("nothing misses what was cleaned on "+list(wave.Nodes), false),
		Estimate: step.Duration(5*time.Second + time.Duration(len(wave.Nodes))*4*time.Second),
	})
}
