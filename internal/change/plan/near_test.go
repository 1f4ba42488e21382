package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

// nearPlan is an adoption of 200 nodes, ten at once: some of its gates ask only some nodes.
func nearPlan(t testing.TB) *plan.Plan {
	return mustMake(t, scaled[slices.IndexFunc(scaled,
		func(s scale) bool { return s.name == "flannel-to-calico-adopt" })].on(t, 200, 3))
}

// TestNear: gates ask only some nodes between those that ask all, which come whenever the changed nodes have doubled.
func TestNear(t *testing.T) {
	p := nearPlan(t)
	var got strings.Builder
	changed := 0
	for _, s := range p.Steps {
		if s.Does == "adopt" {
			changed += len(s.Nodes())
			fmt.Fprintf(&got, "%d:%t ", changed, !s.Gate.Near)
		} else if s.Gate != nil && s.Gate.Near && s.Does != "canary" && s.Does != "switch" {
			t.Errorf("the gate of %s asks only some nodes", s.ID)
		}
	}
	want := "1:true 3:true 7:true 15:true 25:false 31:true 41:false 51:false 61:false 63:true 73:false 83:false " +
		"93:false 103:false 113:false 123:false 127:true 137:false 147:false 157:false 167:false 177:false " +
		"187:false 197:false 200:true "
	if got.String() != want {
		t.Errorf("all nodes are asked at\n%s, not\n%s", got.String(), want)
	}
	if text := plan.Runbook(p); !strings.Contains(text, "from every node whenever the changed nodes have doubled") {
		t.Error("the runbook does not say whom gates ask")
	}
}

// TestNearDoubled: exactly twice as many changed nodes are doubled too, as in waves of one node and one.
func TestNearDoubled(t *testing.T) {
	r := scaled[slices.IndexFunc(scaled,
		func(s scale) bool { return s.name == "flannel-to-calico-adopt" })].on(t, 120, 2)
	r.change.Waves = []int{1, 1, 0}
	for _, s := range mustMake(t, r).Steps {
		if s.Wave == "wave-2" && s.Gate != nil && s.Gate.Near {
			t.Errorf("the gate of %s asks only some nodes", s.ID)
		}
	}
}

// TestNearOnlyWhereItHelps: where all nodes report often, or where gates look at sessions, all are asked.
func TestNearOnlyWhereItHelps(t *testing.T) {
	adopts := scaled[slices.IndexFunc(scaled, func(s scale) bool { return s.name == "flannel-to-calico-adopt" })]
	bgp := scaled[slices.IndexFunc(scaled, func(s scale) bool { return s.name == "calico-to-flannel" })]
	for name, p := range map[string]*plan.Plan{
		"few nodes": mustMake(t, adopts.on(t, 49, 2)), "sessions": mustMake(t, bgp.on(t, 120, 2)),
	} {
		for _, s := range p.Steps {
			if s.Gate != nil && s.Gate.Near {
				t.Errorf("%s: the gate of %s asks only some nodes", name, s.ID)
			}
		}
	}
}

// TestVerifyCatchesNear: no other gate of a plan may ask only some nodes.
func TestVerifyCatchesNear(t *testing.T) {
	p := nearPlan(t)
	tried := 0
	for i := range p.Steps {
		s := p.Steps[i]
		if s.Gate == nil || s.Gate.Near {
			continue
		}
		steps, gate := slices.Clone(p.Steps), *s.Gate
		gate.Near = true
		steps[i].Gate = &gate
		tried++
		if err := plan.Verify(mutant(p, steps)); err == nil || !strings.Contains(err.Error(), "asks") {
			t.Errorf("the gate of %s may ask only some nodes: %v", s.ID, err)
		}
	}
	if tried < 40 {
		t.Errorf("only %d gates were tried", tried)
	}
	for name, test := range map[string]struct {
		change func(*step.Step)
		words  string
	}{
		"it acts on another node": {func(s *step.Step) {
			s.Actions = append(slices.Clone(s.Actions), step.Action{ID: "x", Do: step.Wait{
				Condition: step.Condition{Is: step.NodeReady{Node: "node-199"}}}})
		}, "the step also acts on others"},
		"it acts on the cluster": {func(s *step.Step) {
			s.Actions = append(slices.Clone(s.Actions), step.Action{ID: "x", Do: step.Wait{
				Condition: step.Condition{Is: step.Established{}}}})
		}, "the step also acts on others"},
		"it bakes":    {func(s *step.Step) { s.Gate.Bake = 1 }, "must hold on all nodes"},
		"it compares": {func(s *step.Step) { s.Gate.Compare = true }, "must hold on all nodes"},
		"sessions":    {func(s *step.Step) { s.Gate.Sessions = &step.Sessions{} }, "must hold on all nodes"},
		"a result":    {func(s *step.Step) { s.Gate.Result = true }, "must hold on all nodes"},
		"no wave":     {func(s *step.Step) { s.Wave = "" }, "belongs to no wave"},
	} {
		t.Run(name, func(t *testing.T) {
			steps := slices.Clone(p.Steps)
			i := slices.IndexFunc(steps, func(s step.Step) bool { return s.Gate != nil && s.Gate.Near })
			gate := *steps[i].Gate
			steps[i].Gate = &gate
			test.change(&steps[i])
			if err := plan.Verify(mutant(p, steps)); err == nil || !strings.Contains(err.Error(), test.words) {
				t.Errorf("the error does not say %q: %v", test.words, err)
			}
		})
	}
}
