package joint

import (
	"github.com/theseus-cni/theseus/internal/step"
)

// Retain is the step in which every node retains BIRD's routes within some ranges, without its gate; why is the step's
// reason.
func Retain(nodes, within []string, why string) step.Step {
	retain, letGo := retaining(nodes, within)
	return step.Step{
		Group: "bgp", Does: "retain", Title: "Retain BIRD's routes on every node", Why: why,
		Before:  []step.Condition{{Is: step.NodesAmong{Nodes: nodes}}},
		Actions: retain,
		Undo:    letGo,
	}
}

// LetGo is the step that reverts Retain, without its gate.
func LetGo(nodes, within []string) step.Step {
	retain, letGo := retaining(nodes, within)
	return step.Step{
		Group: "bgp", Does: "let-go", Title: "Give the routes back to BIRD",
		Why:     "A node stops retaining routes only after BIRD has installed all of them again.",
		Actions: letGo,
		Undo:    retain,
	}
}

// Retain adds the step Retain with its gate.
func (b *Builder) Retain(within []string, why string) {
	s := Retain(b.Nodes(), within, why)
	s.Gate = b.Gate("traffic is unaffected by the retained routes", false)
	b.Add(s)
}

// LetGo adds the step LetGo with its gate.
func (b *Builder) LetGo(within []string) {
	s := LetGo(b.Nodes(), within)
	s.Gate = b.Gate("BIRD alone provides all routes", true)
	b.Add(s)
}

// BIRDRestarts is why routes are retained while agents restart.
const BIRDRestarts = "BIRD restarts with the agent. Its neighbours keep its routes, but remove each one for a moment " +
	"when they replace it. In that moment, packets take the retained route."

func retaining(nodes, within []string) (retain, letGo []step.Action) {
	args := Canonical(step.RetainArgs{Within: within})
	retain = OnEach(nodes, func(node string) step.Action {
		return OnNode(node, step.VerbRetain, "retain BIRD's routes on "+node, args)
	})
	letGo = OnEach(nodes, func(node string) step.Action {
		return OnNode(node, step.VerbLetGo, "stop retaining routes on "+node+", once BIRD has installed them all", args)
	})
	return retain, letGo
}
