package engine

import (
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
	"github.com/theseus-cni/theseus/internal/step"
)

// Entitled demands that the plan allows every inverse of a journal: a rollback executes inverses as they are, and
// anyone who can write to the journal in the cluster may have added one. The error names the record.
func Entitled(p *plan.Plan, s State) error {
	const hint = "do not continue with this journal: the approved plan never does this; find out " +
		"who wrote to the JournalPages"
	steps := map[string]*step.Step{}
	for i := range p.Steps {
		steps[p.Steps[i].ID] = &p.Steps[i]
	}
	for _, known := range s.Steps {
		st := steps[known.ID]
		if st == nil {
			return NeedsPerson(hint, "the journal has the step %q, but the plan does not", known.ID)
		}
		actions := map[string]*step.Action{} // as many as there are nodes, or several times as many
		for i := range st.Actions {
			actions[st.Actions[i].ID] = &st.Actions[i]
		}
		for _, done := range known.Actions {
			if err := entitled(p, actions[done.ID], done); err != nil {
				return NeedsPerson(hint, "record %d: step %s, action %s: %w", done.Seq, known.ID, done.ID, err)
			}
		}
	}
	return nil
}

func entitled(p *plan.Plan, action *step.Action, done ActionState) error {
	switch {
	case action == nil:
		return fmt.Errorf("the plan does not have this action")
	case done.Inverse == nil || takesBack(p, *action, *done.Inverse):
		return nil
	}
	return fmt.Errorf("the inverse is to %s, but the plan's step does not allow that", describe(*done.Inverse))
}

// describe names an action by its operation and object; its title is only text.
func describe(a step.Action) string {
	what := string(a.Op())
	if a.Verb() != "" {
		what += " " + a.Verb()
	}
	if ref := a.Ref(); ref != (step.Ref{}) {
		what += " " + ref.String()
	} else if node := a.Node(); node != "" {
		what += " on " + node
	}
	return what
}

// takesBack reports whether an action may undo another: by the same operation or its opposite, on the same object.
func takesBack(p *plan.Plan, a, inverse step.Action) bool {
	if inverse.ID != a.ID+"/undo" {
		return false
	}
	switch do := a.Do.(type) {
	case step.Apply:
		return (inverse.Op() == step.OpDelete || inverse.Op() == step.OpApply) && sameObject(p, a, inverse)
	case step.Delete:
		return inverse.Op() == step.OpApply && sameObject(p, a, inverse)
	case step.Patch:
		return inverse.Op() == step.OpPatch && sameObject(p, a, inverse)
	case step.Taint, step.Untaint:
		taint, back := a.Taint(), inverse.Taint()
		return (inverse.Op() == step.OpTaint || inverse.Op() == step.OpUntaint) &&
			sameNode(p, a.Node(), inverse.Node()) && taint.Key == back.Key && taint.Effect == back.Effect
	case step.Node:
		verb, ok := step.InverseVerb(do.Verb)
		back, is := inverse.Do.(step.Node)
		return ok && is && back.Verb == verb && sameNode(p, do.NodeName, back.NodeName) &&
			canonical.Same(do.Args, back.Args)
	case step.Probe:
		return inverse.Op() == step.OpProbe // a probe action only sets what is measured
	}
	return plan.TakesBack(a, inverse)
}

// sameObject reports whether two actions are about one object.
func sameObject(p *plan.Plan, a, b step.Action) bool {
	left, right := a.Ref(), b.Ref()
	if left.Kind == "Node" && left.APIVersion == "v1" && right.Kind == left.Kind &&
		right.APIVersion == left.APIVersion {
		return sameNode(p, left.Name, right.Name)
	}
	return left == right && left.Name != ""
}

// sameNode reports whether an inverse is for the node of its action. A plan of the strategy surge knows new nodes by
// their slots only; these stand for nodes that did not exist when the plan was made.
func sameNode(p *plan.Plan, planned, node string) bool {
	if planned == node {
		return node != ""
	}
	return slices.Contains(p.Slots(), planned) && !slices.Contains(p.Cluster.Nodes, node)
}
