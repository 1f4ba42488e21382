package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/replace"
	"github.com/theseus-cni/theseus/internal/step"
)

// mutant is a plan with other steps.
func mutant(p *plan.Plan, steps []step.Step) *plan.Plan {
	changed := *p
	changed.Steps = steps
	return &changed
}

// mustNeedOrder demands that no step can be left out, or stand in another place, unless two steps may change places.
func mustNeedOrder(t *testing.T, p *plan.Plan, mayChange func(one, other string) bool) {
	t.Helper()
	for from := range p.Steps {
		rest := slices.Delete(slices.Clone(p.Steps), from, from+1)
		if plan.Verify(mutant(p, rest)) == nil {
			t.Errorf("a plan without %s passes", p.Steps[from].ID)
		}
		for to := range p.Steps {
			if from == to || mayChange != nil && mayChange(p.Steps[from].ID, p.Steps[to].ID) {
				continue
			}
			if plan.Verify(mutant(p, slices.Insert(slices.Clone(rest), to, p.Steps[from]))) == nil {
				t.Errorf("a plan with %s as step %d (not %d) passes", p.Steps[from].ID, to+1, from+1)
			}
		}
	}
}

func TestVerifyHoldsForThePlan(t *testing.T) {
	if err := plan.Verify(mustMake(t, flannelToCalico(t))); err != nil {
		t.Error(err)
	}
}

// TestVerifyCatchesMissingSteps: there is no step that a plan can do without.
func TestVerifyCatchesMissingSteps(t *testing.T) {
	p := mustMake(t, flannelToCalico(t))
	for i, s := range p.Steps {
		if plan.Verify(mutant(p, slices.Delete(slices.Clone(p.Steps), i, i+1))) == nil {
			t.Errorf("a plan without %s passes", s.ID)
		}
	}
}

// TestVerifyCatchesReordering: no step may stand anywhere else.
func TestVerifyCatchesReordering(t *testing.T) {
	p := mustMake(t, flannelToCalico(t))
	for from := range p.Steps {
		for to := range p.Steps {
			if from == to {
				continue
			}
			steps := slices.Delete(slices.Clone(p.Steps), from, from+1)
			steps = slices.Insert(steps, to, p.Steps[from])
			if plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("a plan with %s as step %d (not %d) passes", p.Steps[from].ID, to+1, from+1)
			}
		}
	}
}

// TestVerifyCatchesMissingUndo: no undo, and no action of one, is there in vain.
func TestVerifyCatchesMissingUndo(t *testing.T) {
	p := mustMake(t, flannelToCalico(t))
	for i, s := range p.Steps {
		for j, action := range s.Undo {
			steps := slices.Clone(p.Steps)
			steps[i].Undo = slices.Delete(slices.Clone(s.Undo), j, j+1)
			if action.Op() == step.OpWait {
				continue // waiting changes nothing in a model
			}
			if plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("step %s passes without its undo action %q", s.ID, action.Title)
			}
		}
	}
}

// TestVerifyCatchesMissingActions: of what a step does, only some can be left out without breaking a rule.
func TestVerifyCatchesMissingActions(t *testing.T) {
	p := mustMake(t, flannelToCalico(t))
	for i, s := range p.Steps {
		for j, action := range s.Actions {
			steps := slices.Clone(p.Steps)
			steps[i].Actions = slices.Delete(slices.Clone(s.Actions), j, j+1)
			if plan.Verify(mutant(p, steps)) == nil && !dispensable(&s, &action) {
				t.Errorf("step %s passes without %q", s.ID, action.Title)
			}
		}
	}
}

// dispensable are actions that a model of networks does not miss.
func dispensable(s *step.Step, a *step.Action) bool {
	wait, waits := a.Do.(step.Wait)
	switch {
	case s.ID == "joint/target" && a.Object().GetKind() != "DaemonSet": // what the agent needs is not modelled
	case s.ID == "prepare/theseus" && a.Op() != step.OpApply:
	case strings.HasPrefix(s.ID, "carry/") && a.Op() == step.OpProbe: // hosts that begin again have another address
	case s.ID == "finish/form" && a.Op() == step.OpPatch: // labels
	case s.ID == "finish/form" && a.Op() == step.OpApply && a.Ref().Kind != "DaemonSet": // nor is what it becomes
	case a.Verb() == step.VerbInventory && !s.NoReturn: // stock is taken twice after cleaning
	case s.ID == "finish/form" && a.Op() == step.OpWait: // the step's postcondition says the same
	case (strings.HasSuffix(s.ID, "/move") || strings.HasSuffix(s.ID, "/empty")) && a.Op() == step.OpWait:
		// in a model no agent fails once it was ready
	case waits && wait.Condition.Ref().Kind == "Deployment":
	case waits && wait.Condition.Kind() == step.KindPodGone:
	default:
		return false
	}
	return true
}

// TestVerifyCatches holds single rules.
func TestVerifyCatches(t *testing.T) {
	find := func(steps []step.Step, id string) *step.Step {
		for i := range steps {
			if steps[i].ID == id {
				return &steps[i]
			}
		}
		t.Fatalf("no step %s", id)
		return nil
	}
	for _, test := range []struct {
		name   string
		change func([]step.Step)
		words  string
	}{
		{"two points of no return", func(s []step.Step) { find(s, "finish/form").NoReturn = true },
			"2 points of no return"},
		{"no point of no return", func(s []step.Step) { find(s, "remove/source").NoReturn = false },
			"0 points of no return"},
		{"a point of no return too late", func(s []step.Step) {
			find(s, "remove/source").NoReturn, find(s, "finish/form").NoReturn = false, true
		}, "until the point of no return"},
		{"the same step twice", func(s []step.Step) { find(s, "joint/target").ID = "joint/definitions" }, "not unique"},
		{"the same action twice", func(s []step.Step) {
			prefer := find(s, "switch/prefer")
			prefer.Actions = slices.Clone(prefer.Actions)
			prefer.Actions[1].ID = prefer.Actions[0].ID
		}, "not unique"},
		{"switch without a gate", func(s []step.Step) { find(s, "wave-1/switch").Gate = nil }, "has no gate"},
		{"move without a gate", func(s []step.Step) { find(s, "wave-1/node-1/move").Gate = nil }, "has no gate"},
		{"clean without a gate", func(s []step.Step) { find(s, "remove/clean/wave-1").Gate = nil }, "has no gate"},
		{"source removed without a gate", func(s []step.Step) { find(s, "remove/source").Gate = nil }, "has no gate"},
		{"baseline that is none", func(s []step.Step) {
			probes := find(s, "prepare/probes")
			gate := *probes.Gate
			gate.Baseline, probes.Gate = false, &gate
		}, "before measuring is proven"},
		{"measuring together with what it measures", func(s []step.Step) {
			probes := find(s, "prepare/probes")
			probes.Actions[len(probes.Actions)-1].Together = true
		}, "must not be done together"},
		{"two things together on one node", func(s []step.Step) {
			prefer := find(s, "switch/prefer")
			prefer.Actions[1].Do = prefer.Actions[0].Do
		}, "must not be done together"},
		{"pods moved together with those that are waited for", func(s []step.Step) {
			find(s, "wave-3/control-1/move").Actions[1].Together = true
		}, "must not be done together"},
		{"a target's agent where the networks are not joined", func(s []step.Step) {
			agents := find(s, "joint/agents/wave-2")
			agents.Actions = agents.Actions[1:]
		}, "must be joined"},
		{"the first action together with nothing",
			func(s []step.Step) { find(s, "switch/prefer").Actions[0].Together = true }, "must not be done together"},
		{"unknown operation", func(s []step.Step) { find(s, "joint/agents/wave-1").Actions[0].Do = nil },
			`"" is not known`},
		{"unknown verb", func(s []step.Step) {
			step.Edit(&find(s, "joint/agents/wave-1").Actions[0], func(do *step.Node) { do.Verb = "sing" })
		},
			`"sing" is not known`},
		{"unknown node", func(s []step.Step) {
			step.Edit(&find(s, "joint/agents/wave-1").Actions[0], func(do *step.Node) { do.NodeName = "node-9" })
		},
			`"node-9" is in no wave`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := mustMake(t, flannelToCalico(t))
			test.change(p.Steps)
			err := plan.Verify(p)
			if err == nil || !strings.Contains(err.Error(), test.words) {
				t.Errorf("the error does not say %q: %v", test.words, err)
			}
		})
	}
}

// TestSimulate tells the story of a plan in one line per step.
func TestSimulate(t *testing.T) {
	p := mustMake(t, flannelToCalico(t))
	models := replace.Simulate(p)
	if len(models) != len(p.Steps)+1 {
		t.Fatalf("%d models of %d steps", len(models), len(p.Steps))
	}
	var text strings.Builder
	for _, m := range models {
		fmt.Fprintf(&text, "%-24s", m.After)
		for _, n := range m.Nodes {
			fmt.Fprintf(&text, "  %s:%s", n.Name, letters(n))
		}
		fmt.Fprintf(&text, "  objects:%d\n", len(m.Present))
	}
	golden(t, "simulation.txt", []byte(text.String()))
}

// letters shows a node: A active, a agents, p pods, m measured (each old or new, o/n), j joined, r residue, t taint.
func letters(n replace.NodeModel) string {
	pair := func(name string, oldSide, newSide bool) string {
		text := name
		if oldSide {
			text += "o"
		}
		if newSide {
			text += "n"
		}
		return text + " "
	}
	text := "[" + pair("active=", n.Active == replace.Source, n.Active == replace.Target) +
		pair("agents=", n.SourceAgent, n.TargetAgent) +
		pair("pods=", n.PodsOld, n.PodsNew) + pair("measured=", n.MeasuredOld, n.MeasuredNew) +
		pair("residue=", n.SourceResidue, n.TargetResidue)
	if n.Joined {
		text += "joined "
	}
	if n.Pending {
		text += "pending "
	}
	return strings.TrimSpace(text) + "]"
}
