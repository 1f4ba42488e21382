package joint

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// Retain is the step in which every node retains BIRD's routes within some ranges, without its gate; why is the step's reason.
func Retain(nodes, within []string, why string) step.Step {
	retain, letGo := retaining(nodes, within)
	return step.Step{
		Group: "bgp", Does: "retain", Title: "Retain the routes that BIRD has made", Why: why,
		Before:  []step.Condition{{Kind: step.NodesAmong, Nodes: nodes}},
		Actions: retain,
		Undo:    letGo,
	}
}

// LetGo is the step that reverts Retain, without its gate.
func LetGo(nodes, within []string) step.Step {
	retain, letGo := retaining(nodes, within)
	return step.Step{
		Group: "bgp", Does: "let-go", Title: "Leave the routes to BIRD again",
		Why:     "Each node lets go only when BIRD has made every retained route again.",
		Actions: letGo,
		Undo:    retain,
	}
}

// Retain adds the step Retain with its gate.
func (b *Builder) Retain(within []string, why string) {
	s := Retain(b.Nodes(), within, why)
	s.Gate = b.Gate("nothing noticed", false)
	b.Add(s)
}

// LetGo adds the step LetGo with its gate.
func (b *Builder) LetGo(within []string) {
	s := LetGo(b.Nodes(), within)
	s.Gate = b.Gate("BIRD alone carries all routes and nothing was lost", true)
	b.Add(s)
}

// BIRDRestarts is why routes are retained while agents restart.
const BIRDRestarts = "BIRD starts again with the agent. Its neighbours keep its routes, but to replace one they remove it first, and a packet of that moment takes the retained one."

func retaining(nodes, within []string) (retain, letGo []step.Action) {
	args := step.RetainArgs{Within: slices.Clone(within)}
	retain = OnEach(nodes, func(node string) step.Action {
		return OnNode(node, step.VerbRetain, "retain on "+node+" the routes that BIRD has made", args)
	})
	letGo = OnEach(nodes, func(node string) step.Action {
		return OnNode(node, step.VerbLetGo, "leave the routes of "+node+" to BIRD again, when it has them all", args)
	})
	return retain, letGo
}
