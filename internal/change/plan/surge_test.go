package plan_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/replace"
	"github.com/theseus-cni/theseus/internal/step"
)

// surging replaces two workers; the node of the control plane is switched.
func surging(t testing.TB) *request { return hooked(flannelToCalico(t)) }

// hooked asks for a change by nodes that are replaced.
func hooked(r *request) *request {
	r.change.Strategy, r.change.PodCIDR = "surge", "10.96.0.0/16"
	r.change.AddHook, r.change.RemoveHook = "pool add", `pool "remove it"`
	return r
}

func TestSurgeRunbook(t *testing.T) {
	golden(t, "surge-runbook.txt", []byte(plan.Runbook(mustMake(t, surging(t)))))
}

// TestSurgeNames: slots have names that no node has, as many as are wanted, and the plan survives its file.
func TestSurgeNames(t *testing.T) {
	r := surging(t)
	r.snapshot.Nodes[0].Name = "new-2"
	r.change.Waves, r.change.Surge = []int{0}, 3
	p := mustMake(t, r)
	if got := strings.Join(p.Surge.Slots(), " "); got != "new-1 new-3 new-4" ||
		len(p.Surge.Waves) != 1 || len(p.Waves) != 2 {
		t.Errorf("slots %s, waves %v, of them %v", got, p.Waves, p.Surge.Waves)
	}
	data, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Read(data); err != nil || again.Hash != p.Hash || again.Surge.RemoveHook[1] != "remove it" {
		t.Errorf("read again: %v", err)
	}
}

// TestSurgeHolds: plans of all shapes keep every rule, and so does the one whose nodes are all replaced.
func TestSurgeHolds(t *testing.T) {
	for _, change := range []func(*request){
		func(r *request) {},
		func(r *request) { r.change.Waves = []int{0} },
		func(r *request) { r.change.Waves, r.change.Surge = []int{0}, 1 },
		func(r *request) {
			r.change.ReplaceNodes = "kubernetes.io/os=linux,!node-role.kubernetes.io/control-plane"
		},
		func(r *request) { delete(r.snapshot.Nodes[2].Labels, "node-role.kubernetes.io/control-plane") },
	} {
		r := surging(t)
		change(r)
		p := mustMake(t, r)
		if err := plan.Verify(p); err != nil {
			t.Errorf("%+v: %v", r.change, err)
		}
		models := replace.Simulate(p)
		if len(models) != len(p.Steps)+1 {
			t.Errorf("simulated %d of %d steps", len(models)-1, len(p.Steps))
		}
		last := models[len(models)-1]
		for _, node := range last.Nodes {
			if node.Added == node.Away || !node.Away && node.Active != replace.Target {
				if slices.Contains(p.Waves[len(p.Waves)-1].Nodes, node.Name) && !node.Away {
					continue // it stays
				}
				t.Errorf("at the end: %+v", node)
			}
		}
	}
}

// TestSurgeMutants: no step, no action and no undo of the strategy is there in vain, and no step may stand elsewhere.
func TestSurgeMutants(t *testing.T) {
	p := mustMake(t, surging(t))
	for i, s := range p.Steps {
		if plan.Verify(mutant(p, slices.Delete(slices.Clone(p.Steps), i, i+1))) == nil {
			t.Errorf("a plan without %s passes", s.ID)
		}
		for to := range p.Steps {
			steps := slices.Insert(slices.Delete(slices.Clone(p.Steps), i, i+1), to, s)
			if to != i && plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("a plan with %s as step %d passes", s.ID, to+1)
			}
		}
		for j, action := range s.Actions {
			steps := slices.Clone(p.Steps)
			steps[i].Actions = slices.Delete(slices.Clone(s.Actions), j, j+1)
			if plan.Verify(mutant(p, steps)) == nil && !dispensable(&s, &action) && !needless(&action) {
				t.Errorf("step %s passes without %q", s.ID, action.Title)
			}
		}
		for j, action := range s.Undo {
			steps := slices.Clone(p.Steps)
			steps[i].Undo = slices.Delete(slices.Clone(s.Undo), j, j+1)
			if action.Op() != step.OpWait && plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("step %s passes without its undo action %q", s.ID, action.Title)
			}
		}
	}
}

// needless are waits that only leave the next one less to wait for.
func needless(a *step.Action) bool {
	do, is := a.Do.(step.Wait)
	return is && (do.Condition.Kind() == step.KindNodeReady || do.Condition.Kind() == step.KindGone)
}

func TestSurgeRefuses(t *testing.T) {
	pod := func(r *request) *corev1.Pod {
		i := slices.IndexFunc(r.snapshot.Pods, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, "web-") })
		return &r.snapshot.Pods[i]
	}
	for _, test := range []struct {
		name   string
		change func(*request)
		words  string
	}{
		{"no add hook", func(r *request) { r.change.AddHook = "" }, "no command that adds one is given"},
		{"no remove hook", func(r *request) { r.change.RemoveHook = "" }, "no command that removes one is given"},
		{"a hook that is none", func(r *request) { r.change.AddHook = "sh -c 'x" }, "a quote is not closed"},
		{"hooks of another strategy", func(r *request) { r.change.Strategy = "recreate" },
			"are for the strategy surge"},
		{"fewer than none", func(r *request) { r.change.Surge = -1 }, "cannot be below 0"},
		{"a selector that is none", func(r *request) { r.change.ReplaceNodes = "a in" }, "is no selector"},
		{"nothing selected", func(r *request) { r.change.ReplaceNodes = "a=b" }, "no node would be replaced"},
		{"the control plane", func(r *request) { r.change.ReplaceNodes = "kubernetes.io/os=linux" },
			"node control-1 is part of the control plane"},
		{"no range", func(r *request) { r.change.PodCIDR = "" }, "no range"},
		{"a pod of one node", func(r *request) {
			pod(r).Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-1"}
		}, "selects the node node-1 by name"},
		{"capacity", func(r *request) {
			for i := range r.snapshot.Nodes {
				r.snapshot.Nodes[i].Status.Allocatable = corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("2")}
			}
			pod(r).Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4100m")}}}}
		}, "request 4100m of cpu, and 2 new nodes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := surging(t)
			test.change(r)
			mustRefuse(t, r, test.words)
		})
	}
}
