// Package recreate is the strategy that re-creates pods node by node while both networks are joined. The
// target comes up beside the source on no node, then on all of them; only then is one node after another
// switched, which decides for new pods alone, and its old pods are moved by eviction, within their budgets.
// An old pod and a new pod reach each other all the while. Only when no pod is left on the source is it
// taken away.
//
// The package is pure: it turns what was seen and what is wanted into steps.
package recreate

import (
	"time"

	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/strategy/joint"
)

// Name is how users name the strategy.
const Name = "recreate"

// Steps makes the whole procedure.
func Steps(in joint.Input) []step.Step {
	b := &builder{joint.New(in)}
	b.Prepare()
	b.Bring()
	b.keepOff()
	b.switchNodes()
	b.deleteSource()
	b.CleanSource()
	b.Finish("new")
	return b.Steps
}

type builder struct{ *joint.Builder }

// keepOff steers new pods to nodes that are switched, so that few pods move twice.
func (b *builder) keepOff() {
	var undo []step.Action
	for _, node := range b.Nodes() {
		undo = append(undo, joint.Untaint(node))
	}
	b.Add(step.Step{
		ID:       "switch/prefer",
		Title:    "Prefer switched nodes for new pods",
		Why:      "A pod that is evicted should come back on the new network; the taint is soft, so it comes back in any case.",
		Before:   []step.Condition{joint.Rolled(b.Target.Installation.Agent)},
		Actions:  joint.OnEach(b.Nodes(), joint.Taint),
		Undo:     undo,
		Estimate: step.Duration(2*time.Second + b.PerNode(20*time.Millisecond)),
	})
}
