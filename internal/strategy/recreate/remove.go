package recreate

import (
	"time"

	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/strategy/joint"
)

// deleteSource is the point of no return.
func (b *builder) deleteSource() {
	actions := joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.OnNode(node, step.VerbInventory, "take stock of what "+b.Source.CNI+" left on "+node, b.SourceResidue)
	})
	actions = append(actions, joint.Probe("measure over "+b.TargetName()+" alone", step.PathSet{New: joint.Every()}))
	removals := joint.OnEach(b.Nodes(), func(node string) step.Action { return joint.Remove(joint.ProbePod(node, "old")) })
	removals = append(removals, joint.Remove(joint.ProbeService("old")))
	actions = append(actions, b.RemoveParts(removals...)...)
	actions = append(actions, b.WaitSourceGone()...)
	b.Add(step.Step{
		ID:       "remove/source",
		Title:    "Remove " + b.Source.CNI,
		Why:      "No pod uses it any more.",
		Before:   []step.Condition{{Kind: step.NoPods, CIDRs: b.Join.Old}},
		Actions:  actions,
		After:    b.SourceGone(),
		Gate:     b.Gate("nothing misses "+b.Source.CNI, true),
		NoReturn: true,
		Estimate: step.Duration(15*time.Second + b.Bake() + b.PerNode(2*time.Second)),
	})
}
