package joint

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Retain adds the step by which every node retains the routes within ranges that BIRD has made; why says what it is for.
func (b *Builder) Retain(within []string, why string) {
	retain, letGo := b.retaining(within)
	b.Add(step.Step{
		ID: "bgp/retain", Title: "Retain the routes that BIRD has made", Why: why,
		Before:   []step.Condition{{Kind: step.NodesAmong, Nodes: b.Nodes()}},
		Actions:  retain,
		Undo:     letGo,
		Gate:     b.Gate("nothing noticed", false),
		Estimate: step.Duration(5*time.Second + b.PerNode(200*time.Millisecond)),
	})
}

// LetGo adds the step that ends Retain.
func (b *Builder) LetGo(within []string) {
	retain, letGo := b.retaining(within)
	b.Add(step.Step{
		ID: "bgp/let-go", Title: "Leave the routes to BIRD again",
		Why:      "Each node lets go only when BIRD has made every retained route again.",
		Actions:  letGo,
		Undo:     retain,
		Gate:     b.Gate("BIRD alone carries all routes and nothing was lost", true),
		Estimate: step.Duration(5*time.Second + b.Bake() + b.PerNode(200*time.Millisecond)),
	})
}

func (b *Builder) retaining(within []string) (retain, letGo []step.Action) {
	args := step.RetainArgs{Within: slices.Clone(within)}
	retain = OnEach(b.Nodes(), func(node string) step.Action {
		return OnNode(node, step.VerbRetain, "retain on "+node+" the routes that BIRD has made", args)
	})
	letGo = OnEach(b.Nodes(), func(node string) step.Action {
		return OnNode(node, step.VerbLetGo, "leave the routes of "+node+" to BIRD again, when it has them all", args)
	})
	return retain, letGo
}
