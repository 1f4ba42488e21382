package kube

import (
	"context"
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// answer plays the agent: it gives every task that has no answer yet the next status of the list.
func (w *world) answer(statuses ...map[string]any) (asked func() int) {
	given := 0
	w.slept = func(int) {
		list, err := w.tasks()
		if err != nil {
			w.t.Error(err)
			return
		}
		all, err := list.List(context.Background(), metav1.ListOptions{})
		if err != nil || len(all.Items) != 1 {
			w.t.Errorf("%d tasks, %v", len(all.Items), err)
			return
		}
		task := &all.Items[0]
		if phase, _, _ := unstructured.NestedString(task.Object, "status", "phase"); phase != "" && phase != "Running" {
			return
		}
		task.Object["status"] = statuses[given]
		given++
		if _, err := list.Update(context.Background(), task, metav1.UpdateOptions{}); err != nil {
			w.t.Error(err)
		}
	}
	return func() int { return given }
}

// replaced is how many tasks were replaced.
func (w *world) replaced() (n int) {
	for _, action := range w.dynamic.Actions() {
		if action.GetVerb() == "delete" {
			n++
		}
	}
	return n
}

var joins = step.Action{ID: "j", Do: step.Node{NodeName: "a", Verb: step.VerbJoin,
	Args: json.RawMessage(`{"old":["10.244.0.0/16"]}`)}}

func TestTask(t *testing.T) {
	w := newWorld(t, []runtime.Object{nodeThatIs("True")})
	asked := w.answer(map[string]any{"phase": "Running"},
		map[string]any{"phase": "Failed", "message": "no iptables here", "result": map[string]any{"n": int64(2)}},
		map[string]any{"phase": "Done", "result": map[string]any{"n": int64(3)}})
	half, err := w.do(joins)
	wantError(t, err, "the agent of a says: no iptables here")
	if string(half) != `{"n":2}` {
		t.Errorf("what the agent did before it failed is lost: %s", half)
	}
	if temporary(err) {
		t.Error("an agent that failed is taken for an outage")
	}
	answer, err := w.do(joins)
	if err != nil || string(answer) != `{"n":3}` || asked() != 3 {
		t.Errorf("asked anew after a failure: %s, %v, asked %d times", answer, err, asked())
	}
	object := parse(t, string(w.read(step.Ref{APIVersion: v1alpha1.APIVersion, Kind: "NodeTask",
		Namespace: v1alpha1.Namespace, Name: w.taskName(joins.ID, joins.Verb())})))
	if old, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "args", "old"); len(old) != 1 ||
		old[0] != "10.244.0.0/16" {
		t.Errorf("the agent was asked with %v", object.Object["spec"])
	}
}

func TestTaskOfAnEarlierRun(t *testing.T) {
	w := newWorld(t, []runtime.Object{nodeThatIs("True")})
	// The run that made the task ended while the agent worked.
	ctx := w.end(1)
	_, err := w.Do(ctx, joins, nil)
	wantError(t, err, `no answer from the agent of a, task `+w.taskName(joins.ID, joins.Verb())+` is ""`)
	w.answer(map[string]any{"phase": "Done"})
	if _, err := w.do(joins); err != nil {
		t.Error(err)
	}
	if n := w.replaced(); n != 0 {
		t.Errorf("the task was replaced %d times", n)
	}
}

// TestTaskOfAnOlderEpoch: another process takes the lock over in each state of a task.
func TestTaskOfAnOlderEpoch(t *testing.T) {
	done := map[string]any{"phase": "Done"}
	for name, test := range map[string]struct {
		before  string // the phase that it has at the takeover
		answers []map[string]any
		made    int // by the new holder
	}{
		"no agent began it": {"", []map[string]any{done}, 1},
		"an agent does it":  {"Running", []map[string]any{done}, 0},
		"its agent restarts meanwhile": {"Running",
			[]map[string]any{{"phase": "Failed", "message": "outdated"}, done}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{nodeThatIs("True")})
			w.Epoch = 1
			if _, err := w.Do(w.end(1), joins, nil); err == nil {
				t.Fatal("the first holder has an answer")
			}
			if test.before != "" {
				w.answer(map[string]any{"phase": test.before})
				w.slept(1)
			}
			w.Epoch = 2
			w.dynamic.ClearActions()
			w.answer(test.answers...)
			if _, err := w.do(joins); err != nil {
				t.Error(err)
			}
			made := w.replaced()
			object := parse(t, string(w.read(step.Ref{APIVersion: v1alpha1.APIVersion, Kind: "NodeTask",
				Namespace: v1alpha1.Namespace, Name: w.taskName(joins.ID, joins.Verb())})))
			epoch, _, _ := unstructured.NestedInt64(object.Object, "spec", "epoch")
			if made != test.made || epoch != int64(1+test.made) {
				t.Errorf("the new holder created %d tasks, the last is of epoch %d", made, epoch)
			}
		})
	}
}

func TestTaskDeletedInFlight(t *testing.T) {
	w := newWorld(t, []runtime.Object{nodeThatIs("True")})
	w.slept = func(int) {
		list, _ := w.tasks()
		name := w.taskName(joins.ID, joins.Verb())
		if err := list.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	_, err := w.do(joins)
	wantError(t, err, "was deleted while the agent of a worked on it")
}

func TestTaskNames(t *testing.T) {
	w := newWorld(t, []runtime.Object{nodeThatIs("True")})
	other := joins
	other.ID = "k"
	name := w.taskName(joins.ID, joins.Verb())
	if name == w.taskName(other.ID, other.Verb()) || name != w.taskName(joins.ID, joins.Verb()) {
		t.Error("names do not tell actions apart")
	}
	w.Migration = "another"
	if name == w.taskName(joins.ID, joins.Verb()) {
		t.Error("names do not tell migrations apart")
	}
}

func TestTaskInverses(t *testing.T) {
	w := newWorld(t, []runtime.Object{nodeThatIs("True")})
	for verb, back := range map[string]string{step.VerbJoin: step.VerbPart, step.VerbPart: step.VerbJoin,
		step.VerbActivate: step.VerbDeactivate, step.VerbDeactivate: step.VerbActivate,
		step.VerbClean: "", step.VerbInventory: ""} {
		action := joins
		step.Edit(&action, func(do *step.Node) { do.Verb = verb })
		seen := w.see(action)
		if seen.Done {
			t.Errorf("%s is called done without the agent", verb)
		}
		switch {
		case back == "" && seen.Inverse != nil:
			t.Errorf("%s can be taken back by %s", verb, seen.Inverse.Verb())
		case back != "" && (seen.Inverse == nil || seen.Inverse.Verb() != back || seen.Inverse.Node() != "a" ||
			string(seen.Inverse.Args()) != string(joins.Args())):
			t.Errorf("%s: %+v", verb, seen.Inverse)
		}
	}
}
