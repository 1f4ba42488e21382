package kube

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestSamplesConnect: the agent of the node gets the pairs, with the epoch of the lock, and its answer is taken.
func TestSamplesConnect(t *testing.T) {
	w := newWorld(t, nil)
	w.Epoch = 7
	w.answer(map[string]any{"phase": "Done", "result": map[string]any{"tries": []any{
		map[string]any{"outcome": "silent", "why": "no answer within 2s"}}}})
	pairs := []step.Pair{{Node: "a", From: step.Pod{Name: "x"}, To: step.Pod{Name: "y"}, Port: 80}}
	tries, err := Samples{Actor: w.Actor}.Connect(t.Context(), "a", pairs)
	if err != nil || len(tries) != 1 || tries[0].Outcome != step.TrySilent {
		t.Fatalf("%+v, %v", tries, err)
	}
	list, err := w.tasks()
	if err != nil {
		t.Fatal(err)
	}
	all, err := list.List(context.Background(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	var task v1alpha1.NodeTask
	if err := decode(all.Items[0].Object, &task); err != nil {
		t.Fatal(err)
	}
	var args step.ConnectArgs
	if err := json.Unmarshal(task.Spec.Args, &args); err != nil || task.Spec.Verb != step.VerbConnect ||
		task.Spec.Node != "a" || task.Spec.Epoch != 7 || len(args.Pairs) != 1 || args.Pairs[0] != pairs[0] {
		t.Errorf("%+v: %+v, %v", task.Spec, args, err)
	}
}

// TestSamplesGone: a pod is the same while it has its UID and its address, and is not ending.
func TestSamplesGone(t *testing.T) {
	pod := step.Pod{Namespace: "x", Name: "a", UID: "1", Address: "10.0.0.1"}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		why    string
	}{
		"as it was": {func(*corev1.Pod) {}, ""},
		"not Ready": {func(p *corev1.Pod) { p.Status.Conditions = nil }, ""},
		"replaced":  {func(p *corev1.Pod) { p.UID = "2" }, "was replaced"},
		"ending": {func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = new(metav1.NewTime(time.Unix(1, 0))), []string{"x"}
		}, "is ending"},
		"ended": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "has ended"},
		"moved": {func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.2" }, "has another address"},
		"away":  {func(p *corev1.Pod) { p.Name = "b" }, "does not exist any more"},
	} {
		one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a", UID: "1"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}}
		test.change(one)
		w := newWorld(t, []runtime.Object{one})
		if why, err := (Samples{Actor: w.Actor}).Gone(t.Context(), pod); err != nil || why != test.why {
			t.Errorf("%s: %q, %v", name, why, err)
		}
	}
}
