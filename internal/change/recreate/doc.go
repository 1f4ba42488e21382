// Package recreate is the strategy that recreates pods node by node while both networks are joined. The target is
// first installed on no node, and then started next to the source on all nodes. Only then does Theseus switch one node
// after another: the switch affects only new pods, and Theseus evicts the old ones within their PodDisruptionBudgets.
// Old and new pods reach each other during the whole change. Theseus removes the source only when no pod is left on
// it.
//
// The package is pure: it turns observations and a requested change into steps.
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
