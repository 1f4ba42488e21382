// Package recreate is the strategy that re-creates pods node by node while both networks are joined. The
// target comes up beside the source on no node, then on all of them; only then is one node after another
// switched, which decides for new pods alone, and its old pods are moved by eviction, within their budgets.
// An old pod and a new pod reach each other all the while. Only when no pod is left on the source is it
// taken away.
//
// The package is pure: it turns what was seen and what is wanted into steps.
package recreate

import (
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how users name the strategy.
const Name = "recreate"

// Steps makes the whole procedure.
func Steps(in joint.Input) []step.Step {
	b := joint.New(in)
	b.Prepare()
	b.Bring()
	b.KeepOff()
	// A node that joins meanwhile is not joined to the new network: its pods would not reach those that are moved.
	b.SwitchNodes(b.Waves, step.Condition{Is: step.NodesAmong{Nodes: b.Nodes()}})
	b.DeleteSource(b.Nodes(), true)
	b.CleanSource()
	b.Finish("new")
	return b.Steps
}
