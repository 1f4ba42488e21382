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
	var actions []step.Action
	for _, node := range b.nodes() {
		actions = append(actions, onNode(node, step.VerbInventory, "take stock of what "+b.Source.CNI+" left on "+node, b.SourceResidue))
	}
	actions = append(actions, probe("measure over "+b.target()+" alone", step.PathSet{New: every()}))
	for _, node := range b.nodes() {
		actions = append(actions, remove(probePod(node, "old")))
	}
	actions = append(actions, remove(step.Ref{APIVersion: "v1", Kind: "Service",
		Namespace: manifest.Namespace().GetName(), Name: manifest.ProbeServiceName("old")}))
	for _, part := range b.Source.Parts {
		actions = append(actions, remove(part))
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
	var actions []step.Action
	for _, node := range wave.Nodes {
		actions = append(actions,
			onNode(node, step.VerbClean, "clean "+node+" of "+b.Source.CNI, b.SourceResidue),
			onNode(node, step.VerbInventory, "take stock again on "+node, b.SourceResidue))
	}
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
