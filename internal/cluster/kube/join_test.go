package kube

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// wantJoined looks once for nodes that have joined.
func wantJoined(t *testing.T, joins *Joins, waits string, want ...string) (silent []path.Silence) {
	t.Helper()
	got, err := joins.Join(t.Context())
	if err != nil || !slices.Equal(got.Measured, want) || !strings.Contains(got.Waiting, waits) ||
		waits == "" && got.Waiting != "" {
		t.Errorf("joined %+v, %v; want %q, %q", got, err, want, waits)
	}
	return got.Silent
}

// joinable is a cluster that a guard measures, and a node ab that is Ready and has a prober of its own network.
func joinable(t *testing.T, more ...runtime.Object) (*world, *Joins) {
	t.Helper()
	w := probed(t, append(more, apiServerAt("198.18.0.20"))...)
	w.Measured = Measured{Local: true, HostPorts: true}
	w.slept = func(int) { w.reports(func(v1alpha1.Path) bool { return true }) }
	if _, err := w.do(step.Action{ID: "p", Do: step.Probe{
		Paths: step.PathSet{Old: []string{step.EveryNode}}}}); err != nil {
		t.Fatal(err)
	}
	for _, object := range []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ab"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "198.18.0.13"}}}},
		pod(v1alpha1.Namespace, "host-ab", "ab", "198.18.0.13", label(manifest.LabelApp, manifest.HostProberName))} {
		if err := w.typed.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	return w, &Joins{Actor: w.Actor, Image: "agent"}
}

// podsGVR names pods.
var podsGVR = corev1.SchemeGroupVersion.WithResource("pods")

// whole reports whether every path of a cluster of these nodes is in the plans.
func (w *world) whole(t *testing.T) bool {
	t.Helper()
	plans, err := w.probePlans(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	topology, err := w.topology(t.Context(), step.PathSet{Old: []string{step.EveryNode}})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, one := range pathsOf(plans) {
		there[one.ID] = true
	}
	for _, one := range path.Build(topology) {
		if !there[one.ID] && (one.Source.Node == "ab" || one.Target.Node == "ab") {
			return false
		}
	}
	return true
}

// TestJoinAgain: a plan that cannot be written is written by a later look, and so are the paths to a neighbour whose
// probe pod was not Ready. The node is told once, and another process goes on where one has ended.
func TestJoinAgain(t *testing.T) {
	w, joins := joinable(t)
	if err := w.typed.Tracker().Add(probePod("old", "ab", "10.244.3.2",
		label(manifest.LabelJoined, "true"))); err != nil {
		t.Fatal(err)
	}
	fails := 1
	w.dynamic.PrependReactor("patch", "probeplans", func(clienttesting.Action) (bool, runtime.Object, error) {
		if fails--; fails == 0 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed"))
		}
		return false, nil, nil
	})
	if got, err := joins.Join(t.Context()); err == nil || len(got.Measured) > 0 || w.whole(t) {
		t.Fatalf("%+v, %v", got, err)
	}
	b := probePod("old", "b", "10.244.2.2", unready)
	if err := w.typed.Tracker().Update(podsGVR, b, v1alpha1.Namespace); err != nil {
		t.Fatal(err)
	}
	wantJoined(t, joins, "its paths from and to b are not measured yet: the probe pod there is not Ready", "ab")
	joins = &Joins{Actor: w.Actor, Image: "agent"} // another process
	wantJoined(t, joins, "its paths from and to b are not measured yet")
	if err := w.typed.Tracker().Update(podsGVR, probePod("old", "b", "10.244.2.2"), v1alpha1.Namespace); err != nil {
		t.Fatal(err)
	}
	wantJoined(t, joins, "not all its paths have answered yet")
	if !w.whole(t) {
		t.Error("paths of the node are missing")
	}
	w.reports(func(v1alpha1.Path) bool { return true })
	wantJoined(t, joins, "")
}

// TestJoinedLacks: paths of a node that joined that a cluster may lack are left out and named, after a while; others
// are waited for.
func TestJoinedLacks(t *testing.T) {
	w, joins := joinable(t)
	if err := w.typed.Tracker().Add(probePod("old", "ab", "10.244.3.2",
		label(manifest.LabelJoined, "true"))); err != nil {
		t.Fatal(err)
	}
	wantJoined(t, joins, "not all its paths have answered yet", "ab")
	shut := func(one v1alpha1.Path) bool {
		return one.Target.Node != "ab" || one.Class != path.ClassHostPort && one.Class != path.ClassPodHost
	}
	w.reports(func(one v1alpha1.Path) bool { return shut(one) && one.Class != path.ClassPodPod })
	wantJoined(t, joins, "not all its paths have answered yet")
	w.now = w.now.Add(time.Minute)
	wantJoined(t, joins, "not all its paths have answered yet") // a pod does not answer
	w.reports(shut)
	wantJoined(t, joins, "not all its paths have answered yet")
	w.now = w.now.Add(grace)
	silent := wantJoined(t, joins, "")
	if len(silent) != 2 || silent[0].Class != path.ClassPodHost || silent[0].Shut != "UDP port 7101 of ab" ||
		silent[1].Class != path.ClassHostPort || silent[1].Shut != "TCP port 7202 of ab" {
		t.Errorf("%+v", silent)
	}
	plans, err := w.probePlans(t.Context())
	if err != nil || slices.ContainsFunc(pathsOf(plans), func(one v1alpha1.Path) bool { return !shut(one) }) {
		t.Errorf("paths that do not answer are still measured (%v)", err)
	}
	w.reports(func(v1alpha1.Path) bool { return true })
	if again := wantJoined(t, joins, ""); len(again) > 0 {
		t.Errorf("left out again: %+v", again)
	}
}

// TestJoinedBroken: a port that answers on one path is open, so a path to it that does not answer is broken, also if it
// is the only one to it from a node that joined.
func TestJoinedBroken(t *testing.T) {
	w, joins := joinable(t)
	if err := w.typed.Tracker().Add(probePod("old", "ab", "10.244.3.2",
		label(manifest.LabelJoined, "true"))); err != nil {
		t.Fatal(err)
	}
	wantJoined(t, joins, "not all its paths have answered yet", "ab")
	plans, err := w.probePlans(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := pathsOf(plans)
	i := slices.IndexFunc(all, func(one v1alpha1.Path) bool {
		return one.Class == path.ClassPodHost && one.Source.Node == "ab" && one.Target.Node != "ab"
	})
	broken := all[i].ID
	w.reports(func(one v1alpha1.Path) bool { return one.ID != broken })
	for range 2 {
		if silent := wantJoined(t, joins, "not all its paths have answered yet, such as "+broken); len(silent) > 0 {
			t.Errorf("left out: %+v", silent)
		}
		w.now = w.now.Add(time.Minute)
	}
}

// TestJoinedLacksAgain: paths that two nodes lack are left out of all plans, and are said once these are written.
func TestJoinedLacksAgain(t *testing.T) {
	w, joins := joinable(t)
	for _, object := range []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ac"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "198.18.0.14"}}}},
		pod(v1alpha1.Namespace, "host-ac", "ac", "198.18.0.14", label(manifest.LabelApp, manifest.HostProberName)),
		probePod("old", "ab", "10.244.3.2", label(manifest.LabelJoined, "true")),
		probePod("old", "ac", "10.244.4.2", label(manifest.LabelJoined, "true"))} {
		if err := w.typed.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	wantJoined(t, joins, "not all its paths have answered yet", "ab", "ac")
	shut := func(one v1alpha1.Path) bool { // of both nodes, so one path between them is
		return one.Target.Node != "ab" && one.Target.Node != "ac" || one.Class != path.ClassPodHost
	}
	w.reports(shut)
	wantJoined(t, joins, "not all its paths have answered yet")
	w.now = w.now.Add(time.Minute)
	measured, err := w.probePlans(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := pathsOf(measured)
	fails := 2 // the first plan is written
	w.dynamic.PrependReactor("patch", "probeplans", func(clienttesting.Action) (bool, runtime.Object, error) {
		fails--
		return fails == 0, nil, apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed"))
	})
	if got, err := joins.Join(t.Context()); err == nil || len(got.Silent) > 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	got, err := joins.Join(t.Context())
	if err != nil || len(got.Silent) == 0 || got.Silent[0].Class != path.ClassPodHost || got.Silent[0].Shared > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	once, sum := 0, 0 // a path between both nodes counts once, and the words are those of nodes that joined
	for _, one := range all {
		if !shut(one) {
			once++
		}
	}
	for _, one := range got.Silent {
		if sum += one.Paths - one.Shared; !strings.Contains(one.String(), "since the node joined") ||
			strings.Contains(one.String(), "before the change") {
			t.Error(one)
		}
	}
	if sum != once || once == 0 {
		t.Errorf("%d paths are left out, and %d said: %+v", once, sum, got.Silent)
	}
	plans, err := w.probePlans(t.Context())
	if err != nil || slices.ContainsFunc(pathsOf(plans), func(one v1alpha1.Path) bool { return !shut(one) }) {
		t.Errorf("paths that do not answer are still measured (%v)", err)
	}
	w.reports(shut)
	if silent := wantJoined(t, joins, ""); len(silent) > 0 {
		t.Errorf("left out again: %+v", silent)
	}
}

// TestJoinRefused: a probe pod that the kubelet refuses is named with the reason, and made again, without the hostPorts
// if another pod has these.
func TestJoinRefused(t *testing.T) {
	w, joins := joinable(t)
	wantJoined(t, joins, "its probers are not Ready yet")
	if err := w.typed.Tracker().Add(probePod("old", "ab", "", unready, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "NodePorts", "Predicate NodePorts failed"
	})); err != nil {
		t.Fatal(err)
	}
	wantJoined(t, joins, "its kubelet refused its probe pod, which is made again: NodePorts: Predicate ")
	wantJoined(t, joins, "its probers are not Ready yet")
	made, err := w.get(t.Context(), step.Ref{APIVersion: "v1", Kind: "Pod", Namespace: v1alpha1.Namespace,
		Name: manifest.ProbePodName("ab", path.Old)})
	if err != nil || made == nil || strings.Contains(string(jsonOf(made)), "hostPort") {
		t.Errorf("%v, %v", made, err)
	}
	if err := w.typed.Tracker().Add(probePod("old", "ab", "10.244.3.2",
		label(manifest.LabelJoined, "true"))); err != nil {
		t.Fatal(err)
	}
	wantJoined(t, joins, "not all its paths have answered yet", "ab")
	plans, err := w.probePlans(t.Context())
	if err != nil || slices.ContainsFunc(pathsOf(plans), func(one v1alpha1.Path) bool {
		return one.Class == path.ClassHostPort && one.Target.Node == "ab"
	}) {
		t.Errorf("a port is measured that the pod does not have (%v)", err)
	}
}

// TestJoinBefore: a node that joined before the paths were set has paths of its own network, and gets the others.
func TestJoinBefore(t *testing.T) {
	w, joins := joinable(t)
	if _, err := w.do(step.Action{ID: "p", Do: step.Probe{
		Paths: step.PathSet{Old: []string{step.EveryNode}}}}); err != nil {
		t.Fatal(err)
	}
	wantJoined(t, joins, "its probers are not Ready yet")
	if err := w.typed.Tracker().Add(probePod("old", "ab", "10.244.3.2",
		label(manifest.LabelJoined, "true"))); err != nil {
		t.Fatal(err)
	}
	wantJoined(t, joins, "not all its paths have answered yet", "ab")
	if !w.whole(t) {
		t.Error("paths of the node are missing")
	}
}

// TestUnjoinGone: a probe pod whose node is gone is deleted at once, as no kubelet ends it.
func TestUnjoinGone(t *testing.T) {
	w, _ := joinable(t)
	if err := w.typed.Tracker().Add(probePod("old", "gone", "10.244.4.2",
		label(manifest.LabelJoined, "true"))); err != nil {
		t.Fatal(err)
	}
	var graces []int64
	w.typed.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if grace := a.(clienttesting.DeleteActionImpl).DeleteOptions.GracePeriodSeconds; grace != nil {
			graces = append(graces, *grace)
		}
		return false, nil, nil
	})
	if err := w.unjoin(t.Context()); err != nil || !slices.Equal(graces, []int64{0}) {
		t.Errorf("%v, %v", graces, err)
	}
}

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
		wantJoined(t, joins, waits, want...)
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
	join("node ab has joined, but its probers are not Ready yet")
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
	join("node ab has joined, but its probers are not Ready yet")
	if now, after := measures(); !maps.Equal(generations, now) || !maps.Equal(before, after) {
		t.Errorf("the plans were changed: %v, %d paths", now, len(after))
	}
	if err := w.typed.Tracker().Add(pod(v1alpha1.Namespace, "host-ab", "ab", "198.18.0.13",
		label(manifest.LabelApp, manifest.HostProberName))); err != nil {
		t.Fatal(err)
	}
	join("node ab has joined, and not all its paths have answered yet, such as ", "ab")
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
	w.reports(func(v1alpha1.Path) bool { return true })
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
