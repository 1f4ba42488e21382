package kube

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestJoin: a node that joins gets a probe pod once it is Ready, and is measured once its probers are. Every other path
// stays as it is, also one between two nodes that the new one comes between. At the end its pod is removed.
func TestJoin(t *testing.T) {
	w := probed(t, apiServerAt("198.18.0.20"))
	w.Measured = Measured{Local: true, HostPorts: true, LocalDNS: "169.254.20.10:53"}
	w.slept = func(int) {
		w.reports(func(one v1alpha1.Path) bool { return one.Class != path.ClassHostPort })
	}
	every := step.PathSet{Old: []string{step.EveryNode}}
	if _, err := w.do(step.Action{ID: "p", Do: step.Probe{Paths: every}}); err != nil {
		t.Fatal(err)
	}
	measures := func() (generations map[string]int64, paths map[string]v1alpha1.Path) {
		t.Helper()
		plans, err := w.probePlans(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		generations, paths = map[string]int64{}, map[string]v1alpha1.Path{}
		for _, plan := range plans {
			generations[plan.Name] = plan.Spec.Generation
		}
		for _, one := range pathsOf(plans) {
			paths[one.ID] = one
		}
		return generations, paths
	}
	generations, before := measures()
	joins := &Joins{Actor: w.Actor, Image: "agent"}
	join := func(waits string, want ...string) {
		t.Helper()
		measured, waiting, err := joins.Join(t.Context())
		if err != nil || !slices.Equal(measured, want) || !strings.Contains(waiting, waits) ||
			waits == "" && waiting != "" {
			t.Errorf("joined %q, %q, %v; want %q, %q", measured, waiting, err, want, waits)
		}
	}
	join("")
	status := func(ready corev1.ConditionStatus) corev1.NodeStatus {
		return corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "198.18.0.13"}}}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ab"}, Status: status(corev1.ConditionFalse)}
	if err := w.typed.Tracker().Add(node); err != nil {
		t.Fatal(err)
	}
	join("")
	node.Status = status(corev1.ConditionTrue)
	if err := w.typed.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
		t.Fatal(err)
	}
	join("node ab has joined, and its probers are not Ready yet")
	made, err := w.get(t.Context(), step.Ref{APIVersion: "v1", Kind: "Pod", Namespace: v1alpha1.Namespace,
		Name: manifest.ProbePodName("ab", path.Old)})
	if err != nil || made == nil || made.GetLabels()[manifest.LabelJoined] == "" {
		t.Fatalf("%v, %v", made, err)
	}
	// its probe pod is Ready, and the host's prober is not there yet
	if err := w.typed.Tracker().Add(probePod("old", "ab", "10.244.3.2",
		label(manifest.LabelJoined, "true"))); err != nil {
		t.Fatal(err)
	}
	join("node ab has joined, and its probers are not Ready yet")
	if now, after := measures(); !maps.Equal(generations, now) || !maps.Equal(before, after) {
		t.Errorf("the plans were changed: %v, %d paths", now, len(after))
	}
	if err := w.typed.Tracker().Add(pod(v1alpha1.Namespace, "host-ab", "ab", "198.18.0.13",
		label(manifest.LabelApp, manifest.HostProberName))); err != nil {
		t.Fatal(err)
	}
	join("", "ab")
	now, after := measures()
	from, to := 0, 0
	for id, one := range after {
		if was, is := before[id]; is && was != one {
			t.Errorf("%+v was %+v", one, was)
		} else if is {
			continue
		}
		switch {
		case one.Class == path.ClassHostPort:
			t.Errorf("%s: the class had no answer before the change", id)
		case one.Source.Node == "ab":
			from++
		case one.Target.Node == "ab":
			to++
		default:
			t.Errorf("%s is new", id)
		}
	}
	if from == 0 || to == 0 || len(after) != len(before)+from+to || now["ab"] != 1 || now["a"] != generations["a"]+1 {
		t.Errorf("%d paths from it, %d to it, %d of %d; generations %v", from, to, len(after), len(before), now)
	}
	join("")
	if again, _ := measures(); !maps.Equal(now, again) {
		t.Errorf("nothing has joined, and the plans were written again: %v", again)
	}
	if _, _, err := w.setPathsOf(step.PathSet{}); err != nil {
		t.Fatal(err)
	}
	if left, err := w.get(context.Background(), step.Ref{APIVersion: "v1", Kind: "Pod", Namespace: v1alpha1.Namespace,
		Name: manifest.ProbePodName("ab", path.Old)}); err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
