package kube

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/internal/step"
)

func TestTaints(t *testing.T) {
	ours := corev1.Taint{Key: "theseus.dev/pending", Effect: corev1.TaintEffectPreferNoSchedule}
	valued := corev1.Taint{Key: ours.Key, Effect: ours.Effect, Value: "other"}
	control := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	sameKey := corev1.Taint{Key: ours.Key, Effect: corev1.TaintEffectNoExecute}
	for _, test := range []struct {
		name          string
		op            step.Op
		before, after []corev1.Taint
		done          bool
		back          step.Op
	}{
		{"taint", step.OpTaint, []corev1.Taint{control}, []corev1.Taint{control, ours}, false, step.OpUntaint},
		{"taint again", step.OpTaint, []corev1.Taint{ours, control}, []corev1.Taint{control, ours}, true, step.OpTaint},
		{"taint with another value", step.OpTaint, []corev1.Taint{valued, control},
			[]corev1.Taint{control, ours}, false, step.OpTaint},
		{"taint of another effect", step.OpTaint, []corev1.Taint{sameKey},
			[]corev1.Taint{sameKey, ours}, false, step.OpUntaint},
		{"untaint", step.OpUntaint, []corev1.Taint{control, ours, sameKey},
			[]corev1.Taint{control, sameKey}, false, step.OpTaint},
		{"untaint again", step.OpUntaint, []corev1.Taint{control}, []corev1.Taint{control}, true, step.OpUntaint},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Spec: corev1.NodeSpec{Taints: test.before}}})
			action := step.Action{ID: "t", Do: step.Taint{NodeName: "a", Taint: ours}}
			if test.op == step.OpUntaint {
				action.Do = step.Untaint{NodeName: "a", Taint: ours}
			}
			seen := w.see(action)
			if seen.Done != test.done || seen.Inverse.Op() != test.back {
				t.Errorf("%+v", seen)
			}
			if _, err := w.do(action); err != nil {
				t.Fatal(err)
			}
			if got := w.taints(); !reflect.DeepEqual(got, test.after) {
				t.Errorf("%v", got)
			}
			if _, err := w.do(*seen.Inverse); err != nil {
				t.Fatal(err)
			}
			if got := w.taints(); !sameSet(got, test.before) {
				t.Errorf("restored to %v, was %v", got, test.before)
			}
		})
	}
}

func (w *world) taints() []corev1.Taint {
	node, err := w.typed.CoreV1().Nodes().Get(context.Background(), "a", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return node.Spec.Taints
}

func sameSet(a, b []corev1.Taint) bool {
	in := map[corev1.Taint]int{}
	for _, one := range a {
		in[one]++
	}
	for _, one := range b {
		in[one]--
	}
	for _, n := range in {
		if n != 0 {
			return false
		}
	}
	return true
}

// A node that died permanently and was removed does not keep a migration from being taken back.
func TestNodeThatWasRemoved(t *testing.T) {
	set, revision, of := daemonSet()
	w := newWorld(t, []runtime.Object{set, revision(1, "new"), of("b", "new")})
	for _, action := range []step.Action{
		{Do: step.Untaint{NodeName: "a", Taint: corev1.Taint{Key: "k"}}},
		{Do: step.Patch{Ref: step.Ref{APIVersion: "v1", Kind: "Node", Name: "a"},
			Merge: []byte(`{"metadata":{"labels":{"x":null}}}`)}},
		restartOnA,
	} {
		if seen := w.see(action); !seen.Done || seen.Inverse != nil {
			t.Errorf("%s: %+v", action.Op(), seen)
		}
	}
	for name, verb := range map[string]string{"any verb": step.VerbJoin, "a residue": step.VerbInventory} {
		action := joins
		action.ID = name
		do := action.Do.(step.Node)
		do.Verb, do.Args = verb, []byte(`{"annotations":["x"]}`)
		action.Do = do
		if answer, err := w.do(action); err != nil || answer != nil {
			t.Errorf("%s: %s, %v", name, answer, err)
		}
		if n := w.tasksLeft(); n != 0 {
			t.Errorf("%s: %d tasks are left for a node that gets the name later", name, n)
		}
	}
}

// TestNodeRemovedWhileItsAgentWorks: what the agent has done of a task is not known, so it has failed. A later try, by
// whichever process, finds that there is nothing left to do. No task is left for a node that gets the name later.
func TestNodeRemovedWhileItsAgentWorks(t *testing.T) {
	w := newWorld(t, nil)
	w.answer(slices.Repeat([]map[string]any{{"phase": "Running"}}, 1000)...)
	_, err := w.do(joins)
	wantError(t, err, "no answer from the agent of a: node a is not in the cluster any more")
	if n := w.tasksLeft(); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
	w.slept = nil
	if answer, err := w.do(joins); err != nil || answer != nil {
		t.Errorf("the later try: %s, %v", answer, err)
	}
}

// TestNodeRemovedBetweenTries: a task that an earlier try left is withdrawn when its node is gone, unless it has its
// answer.
func TestNodeRemovedBetweenTries(t *testing.T) {
	for phase, left := range map[string]int{"": 0, "Running": 0, "Done": 1, "Failed": 1} {
		w := newWorld(t, []runtime.Object{nodeThatIs("True")})
		if _, err := w.Do(w.end(1), joins, nil); err == nil {
			t.Fatal("the first try has an answer")
		}
		if phase != "" {
			w.answer(map[string]any{"phase": phase})
			w.slept(1)
		}
		if err := w.typed.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if answer, err := w.do(joins); err != nil || answer != nil {
			t.Errorf("%q: %s, %v", phase, answer, err)
		}
		if n := w.tasksLeft(); n != left {
			t.Errorf("%q: %d tasks are left, want %d", phase, n, left)
		}
	}
}

func (w *world) tasksLeft() int {
	w.t.Helper()
	tasks, err := w.tasks()
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := tasks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(all.Items)
}

// On a busy cluster others write the same object again and again.
func TestConflictsArePersistedThrough(t *testing.T) {
	node := func() runtime.Object { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}} }
	config := `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}`
	for _, test := range []struct {
		name, verb string
		action     step.Action
	}{
		{"taint", "update", step.Action{Do: step.Taint{NodeName: "a", Taint: corev1.Taint{Key: "k"}}}},
		{"patch", "patch", step.Action{Do: step.Patch{Merge: []byte(`{"data":{"a":"b"}}`),
			Ref: step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "c"}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{node()}, config)
			left := 30
			conflict := func(action clienttesting.Action) (bool, runtime.Object, error) {
				left--
				return left >= 0, nil, apierrors.NewConflict(action.GetResource().GroupResource(),
					"x", errors.New("it was written"))
			}
			w.typed.PrependReactor(test.verb, "*", conflict)
			w.dynamic.PrependReactor(test.verb, "*", conflict)
			if _, err := w.do(test.action); err != nil || left != -1 {
				t.Errorf("%v, %d conflicts left", err, left)
			}
			left = 1000
			_, err := w.Do(w.end(w.sleeps+3), test.action, nil)
			wantError(t, err, "other clients keep changing the object")
		})
	}
}
