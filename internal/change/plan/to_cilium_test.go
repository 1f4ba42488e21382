package plan_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// flannelToCilium is a change from flannel with kube-router to what Cilium's chart makes.
func flannelToCilium(t testing.TB) *request {
	r := flannelToCalico(t)
	for i := range r.snapshot.Nodes {
		r.snapshot.Nodes[i].Status.NodeInfo.KernelVersion = "6.8.0-45-generic"
	}
	r.change.To, r.change.Manifest = "cilium", "cilium.yaml"
	r.options.Manifest = cnitest.Fixture(t, "charts/cilium-v1.19.0.yaml")
	return r
}

// TestToCilium: pods are created again, while a program makes those of flannel known to Cilium's agents.
func TestToCilium(t *testing.T) {
	p := mustMake(t, flannelToCilium(t))
	golden(t, "to-cilium-runbook.txt", []byte(plan.Runbook(p)))
	if p.Strategy != "recreate" || p.Target.Capabilities.Introduction == nil || len(p.Target.Capabilities.Marks) != 2 {
		t.Errorf("strategy %s to %+v", p.Strategy, p.Target)
	}
}

// TestVerifyToCiliumOrder: no step of such a plan may be left out or stand anywhere else.
func TestVerifyToCiliumOrder(t *testing.T) {
	p := mustMake(t, flannelToCilium(t))
	for from := range p.Steps {
		rest := slices.Delete(slices.Clone(p.Steps), from, from+1)
		if plan.Verify(mutant(p, rest)) == nil {
			t.Errorf("a plan without %s passes", p.Steps[from].ID)
		}
		for to := range p.Steps {
			if from != to && plan.Verify(mutant(p, slices.Insert(slices.Clone(rest), to, p.Steps[from]))) == nil {
				t.Errorf("a plan with %s as step %d (not %d) passes", p.Steps[from].ID, to+1, from+1)
			}
		}
	}
}

// TestVerifyToCilium: nodes are joined with the changes of marks, and every CRD of Cilium is looked for, and deleted by a rollback.
func TestVerifyToCilium(t *testing.T) {
	for name, harm := range map[string]func(s *step.Step, a *step.Action) bool{
		"marks": func(_ *step.Step, a *step.Action) bool {
			if a.Verb != step.VerbJoin {
				return false
			}
			a.Args = []byte(`{"old": ["10.244.0.0/16"], "new": ["10.96.0.0/16"]}`)
			return true
		},
		"a CRD that is not looked for": func(s *step.Step, a *step.Action) bool {
			if a.Op != step.Wait || a.Condition.Kind != step.Gone {
				return false
			}
			s.Actions, s.Undo = s.Actions[1:], s.Undo[1:]
			return true
		},
		"a CRD that stays": func(s *step.Step, a *step.Action) bool {
			if a.Op != step.Wait || a.Condition.Kind != step.Gone {
				return false
			}
			s.Undo = s.Undo[1:]
			return true
		},
	} {
		p := mustMake(t, flannelToCilium(t))
		harmed := false
		for i := range p.Steps {
			s := &p.Steps[i]
			s.Actions, s.Undo = slices.Clone(s.Actions), slices.Clone(s.Undo)
			for j := 0; j < len(s.Actions) && !harmed; j++ {
				harmed = harm(s, &s.Actions[j])
			}
		}
		if !harmed {
			t.Errorf("%s: the plan has nothing of it", name)
		} else if plan.Verify(p) == nil {
			t.Errorf("%s: the plan passes", name)
		}
	}
}

// TestToCiliumRefuses: which sources were never run, and what would be lost.
func TestToCiliumRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*request)
		words  string // of the refusal
		hint   string
	}{
		{"adoption", func(r *request) { r.change.Strategy, r.change.PodCIDR = "adopt", "" }, "cilium gives no pod an address", "--pod-cidr"},
		{"no policy agent", func(r *request) {
			r.snapshot.DaemonSets = slices.DeleteFunc(r.snapshot.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == "kube-router" })
		}, "only from a network with VXLAN, next to which an agent enforces NetworkPolicy", "docs/networks.md"},
		{"an old kernel", func(r *request) { r.snapshot.Nodes[1].Status.NodeInfo.KernelVersion = "5.15.0-91-generic" },
			"node node-2 has Linux 5.15.0-91-generic", "6.6"},
		{"CRDs of a former Cilium", func(r *request) {
			r.snapshot.Other = append(r.snapshot.Other, cnitest.Documents(t, []byte("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ciliumnodes.cilium.io}\n"))...)
		}, "already has 1 CRDs of Cilium", "kubectl delete crd ciliumnodes.cilium.io"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := flannelToCilium(t)
			test.change(r)
			if hint := mustRefuse(t, r, test.words); !strings.Contains(hint, test.hint) {
				t.Errorf("the hint is %q, without %q", hint, test.hint)
			}
		})
	}
}

// TestToCiliumUndoes: a rollback deletes the CRDs that Cilium's operator has made, and stops the program that introduces pods.
func TestToCiliumUndoes(t *testing.T) {
	p := mustMake(t, flannelToCilium(t))
	undone := map[string]bool{}
	for _, s := range p.Steps {
		for _, a := range s.Undo {
			if a.Op == step.Delete {
				undone[a.Ref.String()] = true
			}
		}
	}
	for _, want := range []string{"CustomResourceDefinition/ciliumidentities.cilium.io", "CustomResourceDefinition/ciliumendpoints.cilium.io",
		"Deployment/theseus-system/theseus-introduce", "ClusterRole/theseus-introduce"} {
		if !undone[want] {
			t.Errorf("%s is not undone: %v", want, undone)
		}
	}
}
