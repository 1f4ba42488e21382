package plan_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// flannelToOperator is a cluster on flannel, to which Calico comes by its operator.
func flannelToOperator(t testing.TB) *request {
	r := flannelToCalico(t)
	r.options.Manifest = slices.Concat(cnitest.Fixture(t, "operator-crds.yaml"),
		cnitest.Fixture(t, "tigera-operator-v1.40.0.yaml"), cnitest.Fixture(t, "tigera-custom-resources.yaml"))
	for i := range r.options.Manifest {
		if object := &r.options.Manifest[i]; object.GetKind() == "Installation" {
			if err := unstructured.SetNestedField(object.Object, "Nftables", "spec", "calicoNetwork",
				"linuxDataplane"); err != nil {
				t.Fatal(err)
			}
		}
	}
	return r
}

// TestToOperator: the steps are those of any pair, but that the operator makes the agents, and replaces them at the
// end.
func TestToOperator(t *testing.T) {
	p := mustMake(t, flannelToOperator(t))
	golden(t, "to-operator-runbook.txt", []byte(plan.Runbook(p)))
	if p.Strategy != "recreate" || p.Target.Version != "v3.31.0" || p.Target.Agent.Namespace != "calico-system" {
		t.Errorf("strategy %s to %+v", p.Strategy, p.Target)
	}
	for i := range p.Steps {
		if slices.ContainsFunc(p.Steps[i].Actions, func(a step.Action) bool { return a.Op() == step.OpRestart }) {
			t.Errorf("step %s restarts agents, which is the operator's to do", p.Steps[i].ID)
		}
	}
	// Agents without Typha are not ready, and nothing of them says why: what ails Typha is told where that is waited
	// for, before there is an agent.
	var awaited []string
	for _, action := range p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool {
		return s.ID == "joint/target"
	})].Actions {
		if do, is := action.Do.(step.Wait); is && do.Condition.Kind() == step.KindRolled {
			awaited = append(awaited, do.Condition.Ref().Name)
		}
	}
	if !slices.Equal(awaited, []string{"calico-typha", "calico-kube-controllers"}) {
		t.Errorf("before the first agent, %q are waited for", awaited)
	}
}

// TestVerifyToOperator: what the operator has made is seen before it counts, and its object goes when no agent is left.
func TestVerifyToOperator(t *testing.T) {
	for _, id := range []string{"joint/target", "finish/form"} {
		p := mustMake(t, flannelToOperator(t))
		at := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == id })
		p.Steps[at].Actions = slices.DeleteFunc(p.Steps[at].Actions, func(a step.Action) bool {
			return a.Op() == step.OpWait && a.Do.(step.Wait).Condition.Kind() == step.KindHas
		})
		if err := plan.Verify(p); err == nil {
			t.Errorf("%s: nobody looks what the operator made, and Verify does not notice", id)
		}
	}
	p := mustMake(t, flannelToOperator(t))
	for i := range p.Steps {
		for j := range p.Steps[i].Actions {
			if a := &p.Steps[i].Actions[j]; a.Op() == step.OpApply && a.Object().GetKind() == "Installation" &&
				p.Steps[i].ID == "joint/target" {
				unstructured.RemoveNestedField(a.Object().Object, "spec", "calicoNodeDaemonSet")
			}
		}
	}
	if err := plan.Verify(p); err == nil || !strings.Contains(err.Error(), "without the label") {
		t.Errorf("agents on every node at once: %v", err)
	}
}
