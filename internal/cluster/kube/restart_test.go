package kube

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/internal/step"
)

var restartOnA = step.Action{ID: "r", Do: step.Restart{NodeName: "a",
	Ref: step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "net", Name: "agent"}}}

// daemonSet is that one, at its second generation, with what makes revisions and pods of it.
func daemonSet() (*appsv1.DaemonSet, func(number int64, hash string) *appsv1.ControllerRevision,
	func(node, hash string, change ...func(*corev1.Pod)) *corev1.Pod) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: "agent", UID: "set", Generation: 2},
		Spec: appsv1.DaemonSetSpec{Selector: selector}, Status: appsv1.DaemonSetStatus{ObservedGeneration: 2}}
	owned := []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	labels := func(hash string) map[string]string {
		return map[string]string{"app": "agent", appsv1.ControllerRevisionHashLabelKey: hash}
	}
	revision := func(number int64, hash string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{Revision: number,
			ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: "agent-" + hash,
				Labels: labels(hash), OwnerReferences: owned}}
	}
	of := func(node, hash string, change ...func(*corev1.Pod)) *corev1.Pod {
		made := pod("net", "agent-"+node+"-"+hash, node, "", change...)
		made.Labels, made.OwnerReferences = labels(hash), owned
		return made
	}
	return set, revision, of
}

// TestRestart plays the DaemonSet controller: it is late in looking, makes a successor when the old pod is gone,
// and the successor takes its time to be Ready. Pods of other nodes are left alone.
func TestRestart(t *testing.T) {
	set, revision, pod := daemonSet()
	set.Status.ObservedGeneration = 1
	w := newWorld(t, []runtime.Object{nodeThatIs("True"), set, revision(1, "old"), pod("a", "old"), pod("b", "old")})
	pods := w.typed.CoreV1().Pods("net")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	deleted := func() bool {
		_, err := pods.Get(t.Context(), "agent-a-old", metav1.GetOptions{})
		return err != nil
	}
	made, nudged := false, 0
	w.typed.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		nudged++
		return false, nil, nil
	})
	w.slept = func(n int) {
		switch {
		case n == 2:
			if deleted() {
				t.Error("a pod was deleted before the controller knew of the new template")
			}
			set.Status.ObservedGeneration = 2
			_, err := w.typed.AppsV1().DaemonSets("net").UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
			must(err)
			_, err = w.typed.AppsV1().ControllerRevisions("net").Create(t.Context(),
				revision(2, "new"), metav1.CreateOptions{})
			must(err)
		case n > 4 && deleted() && !made:
			made = true
			_, err := pods.Create(t.Context(), pod("a", "new", unready), metav1.CreateOptions{})
			must(err)
		case n == 8:
			_, err := pods.UpdateStatus(t.Context(), pod("a", "new"), metav1.UpdateOptions{})
			must(err)
		}
	}
	action := restartOnA
	if w.see(action).Done {
		t.Error("done before it began")
	}
	if _, err := w.do(action); err != nil {
		t.Fatal(err)
	}
	if w.sleeps != 8 {
		t.Errorf("it ended after %d looks, not when the successor was Ready", w.sleeps)
	}
	if !w.see(action).Done {
		t.Error("not done afterwards")
	}
	successor, err := pods.Get(t.Context(), "agent-a-new", metav1.GetOptions{})
	if err != nil || nudged < 2 || len(successor.Annotations) > 0 {
		t.Errorf("the kubelet was asked to look anew by %d patches, which left %v, %v",
			nudged, successor.Annotations, err)
	}
	if _, err := pods.Get(t.Context(), "agent-b-old", metav1.GetOptions{}); err != nil {
		t.Errorf("the pod of another node: %v", err)
	}
}

// TestRestartOnARemovedNode: pods of a node that was removed are there until pod garbage collection deletes them, and
// nothing is left to restart.
func TestRestartOnARemovedNode(t *testing.T) {
	set, revision, pod := daemonSet()
	always := restartOnA
	step.Edit(&always, func(do *step.Restart) { do.Always = true })
	for _, action := range []step.Action{restartOnA, always} {
		w := newWorld(t, []runtime.Object{set, revision(1, "old"), revision(2, "new"), pod("a", "old")})
		if seen := w.see(action); !seen.Done || seen.Inverse != nil {
			t.Errorf("a node that was removed before: %+v", seen)
		}
	}
	w := newWorld(t, []runtime.Object{nodeThatIs("True"), set, revision(2, "new"), pod("a", "old")})
	if w.see(restartOnA).Done {
		t.Error("done before it began")
	}
	w.slept = func(n int) {
		if n != 3 {
			return
		}
		if err := w.typed.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	begun := w.now
	if _, err := w.do(restartOnA); err != nil || w.now.Sub(begun) > 3*stuckEvery {
		t.Errorf("a node that is removed meanwhile: %v, after %s", err, w.now.Sub(begun))
	}
}

// TestRestartMarked: where a hold denies the deletion of pods without a mark, the one whose turn it is has it, and no
// other.
func TestRestartMarked(t *testing.T) {
	set, revision, pod := daemonSet()
	w := newWorld(t, []runtime.Object{nodeThatIs("True"), set, revision(2, "new"), pod("a", "old"), pod("b", "old")})
	pods := w.typed.CoreV1().Pods("net")
	w.slept = func(n int) {
		if _, err := pods.Create(t.Context(), pod("a", "new"), metav1.CreateOptions{}); err != nil && n == 1 {
			t.Error(err)
		}
	}
	action := restartOnA
	step.Edit(&action, func(do *step.Restart) { do.Mark = "mark" })
	if _, err := w.do(action); err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, action := range w.typed.Actions() {
		switch action := action.(type) {
		case clienttesting.PatchAction:
			done = append(done, action.GetName()+" "+string(action.GetPatch()))
		case clienttesting.DeleteAction:
			done = append(done, action.GetName()+" deleted")
		}
	}
	want := []string{`agent-a-old {"metadata":{"annotations":{"mark":"true"},"uid":"agent-a-old-uid"}}`,
		"agent-a-old deleted"}
	if !slices.Equal(done, want) {
		t.Errorf("got %q, want %q", done, want)
	}
}

// TestRestartAlways: a pod of the current template is replaced, once, by whichever process; and never by one that does
// not know which pod was there before.
func TestRestartAlways(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: "agent", UID: "set", Generation: 1},
		Spec: appsv1.DaemonSetSpec{Selector: selector}}
	owned := metav1.ObjectMeta{Namespace: "net",
		Labels: map[string]string{"app": "agent", appsv1.ControllerRevisionHashLabelKey: "new"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set,
			appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}}
	pod := func(node, name string) *corev1.Pod {
		meta := *owned.DeepCopy()
		meta.Name, meta.UID = name, types.UID("uid-"+name)
		return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: *owned.DeepCopy(), Revision: 1}
	revision.Name = "agent-new"
	w := newWorld(t, []runtime.Object{nodeThatIs("True"), set, revision, pod("a", "first"), pod("b", "other")})
	pods := w.typed.CoreV1().Pods("net")
	w.slept = func(int) {
		if _, err := pods.Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
			_, _ = pods.Create(t.Context(), pod("a", "second"), metav1.CreateOptions{}) // the second time it is there
		}
	}
	action := step.Action{ID: "r", Do: step.Restart{Always: true, NodeName: "a",
		Ref: step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "net", Name: "agent"}}}
	before := w.see(action)
	if before.Done || string(before.Before) != `{"pods":["uid-first"]}` {
		t.Errorf("at first, when its controller is late, it sees %t, %s", before.Done, before.Before)
	}
	set.Status.ObservedGeneration = 1
	if _, err := w.typed.AppsV1().DaemonSets("net").UpdateStatus(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if now := w.see(action); now.Done || string(now.Before) != string(before.Before) {
		t.Errorf("then it sees %t, %s", now.Done, now.Before)
	}
	if _, err := w.Do(t.Context(), action, nil); err == nil {
		t.Error("a pod was replaced of which nobody knew")
	}
	done := func() bool {
		t.Helper()
		seen, err := w.Observe(t.Context(), action, before.Before)
		if err != nil {
			t.Fatal(err)
		}
		return seen.Done
	}
	if done() {
		t.Error("done before it began")
	}
	for range 2 { // as a process does that takes over
		if _, err := w.Do(t.Context(), action, before.Before); err != nil {
			t.Fatal(err)
		}
		if !done() {
			t.Error("not done afterwards")
		}
		if _, err := pods.Get(t.Context(), "second", metav1.GetOptions{}); err != nil {
			t.Errorf("its successor: %v", err)
		}
	}
	if _, err := pods.Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Errorf("the pod of another node: %v", err)
	}
	if _, err := w.Observe(t.Context(), action, []byte("{")); err == nil {
		t.Error("a journal that cannot be read is passed over")
	}
}
