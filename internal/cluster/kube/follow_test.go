package kube

import (
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestFollowProbePods: paths to a probe pod that has another address lead there, those to nodes and Services stay, and
// a pod that is not Ready is not followed.
func TestFollowProbePods(t *testing.T) {
	w := probed(t)
	before, _, err := w.setPathsOf(step.PathSet{Old: []string{step.EveryNode}})
	if err != nil {
		t.Fatal(err)
	}
	follow := func(want ...string) []v1alpha1.ProbePlan {
		t.Helper()
		nodes, err := w.FollowProbePods(t.Context())
		if err != nil || !slices.Equal(nodes, want) {
			t.Errorf("followed %q, %v, want %q", nodes, err, want)
		}
		plans, err := w.probePlans(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return plans
	}
	was := pathsOf(follow())
	moves := func(change ...func(*corev1.Pod)) {
		t.Helper()
		if err := w.typed.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"),
			probePod("old", "b", "10.244.2.77", change...), v1alpha1.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	moves(unready)
	follow()
	moves()
	plans := follow("b")
	led := 0
	for i, one := range pathsOf(plans) {
		leads := strings.HasPrefix(was[i].Target.Address, "10.244.2.2:")
		host, _, _ := net.SplitHostPort(one.Target.Address)
		second, _, _ := net.SplitHostPort(one.Second)
		switch {
		case !leads && one != was[i]:
			t.Errorf("%+v was %+v", one, was[i])
		case leads && (host != "10.244.2.77" || one.Second != "" && second != host || one.ID != was[i].ID ||
			(one.Second == "") != (was[i].Second == "")):
			t.Errorf("%+v was %+v", one, was[i])
		case leads:
			led++
		}
	}
	if led == 0 {
		t.Error("no path leads to the pod")
	}
	for _, plan := range plans {
		if plan.Spec.Generation != before[plan.Name]+1 && plan.Name == "a" {
			t.Errorf("%s has generation %d after %d", plan.Name, plan.Spec.Generation, before[plan.Name])
		}
	}
	again := follow()
	if !slices.EqualFunc(plans, again, func(a, b v1alpha1.ProbePlan) bool {
		return a.Spec.Generation == b.Spec.Generation
	}) {
		t.Error("nothing has changed, and the plans were written again")
	}
}
