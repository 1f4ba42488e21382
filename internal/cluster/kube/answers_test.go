package kube

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestAnswers: what agents write to tasks comes by the watch, also after it was cut off. When it cannot go on, each
// task is read, and the next one begins a new watch.
func TestAnswers(t *testing.T) {
	f, _ := newFollower(t)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: v1alpha1.Group, Version: v1alpha1.Version, Kind: "NodeTask"},
		meta.RESTScopeNamespace)
	f.Mapper = fixedMapper{mapper}
	put := func(name string, phase v1alpha1.TaskPhase) {
		f.server.Put(t, "NodeTask", name, v1alpha1.NodeTask{Status: v1alpha1.NodeTaskStatus{Phase: phase}})
	}
	put("a", "")
	news, done := f.answers.expect("a")
	other, otherDone := f.answers.expect("b")
	defer otherDone()
	version := func() string {
		tasks, err := f.tasks()
		if err != nil {
			t.Fatal(err)
		}
		list, err := tasks.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.GetResourceVersion()
	}
	read := func() *v1alpha1.NodeTask {
		t.Helper()
		select {
		case task := <-news:
			return task
		case <-time.After(10 * time.Second):
			t.Fatal("the watch brings nothing")
			return nil
		}
	}
	if !f.answers.from(version()) {
		t.Fatal("there is no watch")
	}
	if task := read(); task != nil {
		t.Errorf("something may have been missed before the watch: %+v", task)
	}
	<-other
	put("c", v1alpha1.TaskDone) // nobody waits for it
	put("a", v1alpha1.TaskRunning)
	if task := read(); task == nil || task.Status.Phase != v1alpha1.TaskRunning {
		t.Errorf("%+v", task)
	}
	f.server.Cut()
	put("a", v1alpha1.TaskDone)
	if task := read(); task == nil || task.Status.Phase != v1alpha1.TaskDone {
		t.Errorf("after the watch was cut off: %+v", task)
	}
	f.server.Delete("NodeTask", "a")
	if task := read(); task != nil {
		t.Errorf("a task that was deleted: %+v", task)
	}
	put("a", "")
	if task := read(); task == nil || task.Status.Phase != "" {
		t.Errorf("a task that was made again: %+v", task)
	}
	f.server.Forget()
	if task := read(); task != nil {
		t.Errorf("when the watch cannot go on: %+v", task)
	}
	if len(other) != 1 {
		t.Error("one of the waiting does not know that the watch has ended")
	}
	if f.answers.from("1") {
		t.Error("a watch begins after a version that the API server may have forgotten")
	}
	put("a", v1alpha1.TaskRunning)
	if !f.answers.from(version()) {
		t.Error("no new watch begins")
	}
	if task := read(); task != nil {
		t.Errorf("something may have been missed before the new watch: %+v", task)
	}
	put("a", v1alpha1.TaskFailed)
	if task := read(); task == nil || task.Status.Phase != v1alpha1.TaskFailed {
		t.Errorf("by the new watch: %+v", task)
	}
	done()
	last, _ := f.answers.expect("z")
	put("a", v1alpha1.TaskDone)
	put("z", v1alpha1.TaskDone)
	if <-last; len(news) != 0 {
		t.Error("it brings a task for which nobody waits any more")
	}
	f.server.Deny(true)
	if task := <-last; task != nil || f.answers.from(version()) {
		t.Errorf("a watch that is not allowed is tried again at once; it brought %+v", task)
	}
	later := func() bool {
		put("c", "") // another version
		f.answers.lock.Lock()
		f.answers.denied = f.answers.denied.Add(-rewatchTasks)
		f.answers.lock.Unlock()
		return f.answers.from(version())
	}
	if !later() {
		t.Fatal("a watch that was refused is not tried again")
	}
	for task := range last { // the first says that something may have been missed, the second that it is refused again
		if task != nil {
			t.Errorf("a watch that is refused again brought %+v", task)
		}
		f.answers.lock.Lock()
		live := f.answers.live
		f.answers.lock.Unlock()
		if !live {
			break
		}
	}
	f.lock.Lock()
	if len(f.notes) != 1 || !strings.HasPrefix(f.notes[0], "warning: NodeTasks cannot be watched (") {
		t.Errorf("told %q", f.notes)
	}
	f.lock.Unlock()
	f.server.Deny(false)
	if !later() {
		t.Fatal("a watch that is allowed again does not begin")
	}
	if task := <-last; task != nil {
		t.Errorf("something may have been missed before it: %+v", task)
	}
	put("z", v1alpha1.TaskRunning)
	if task := <-last; task == nil || task.Status.Phase != v1alpha1.TaskRunning {
		t.Errorf("a watch that is allowed again brought %+v", task)
	}
}

// TestAnswerOfAFormerTask: what a watch brings of a task that was replaced is not the answer of its successor.
func TestAnswerOfAFormerTask(t *testing.T) {
	w := newWorld(t, nil)
	events := watch.NewFake()
	w.answers.begin = func(string) (watch.Interface, error) { return events, nil }
	says := func(uid string, phase v1alpha1.TaskPhase, n int64) {
		events.Modify(&unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion,
			"kind": "NodeTask", "metadata": map[string]any{"name": w.taskName(joins.ID, joins.Verb()), "uid": uid},
			"status": map[string]any{"phase": string(phase), "message": "no", "result": map[string]any{"n": n}}}})
	}
	go func() {
		says("former", v1alpha1.TaskFailed, 1)
		says("", v1alpha1.TaskRunning, 2) // the fake API server gives no UID
		says("former", v1alpha1.TaskDone, 3)
		says("", v1alpha1.TaskDone, 4)
	}()
	if answer, err := w.do(joins); err != nil || string(answer) != `{"n":4}` {
		t.Errorf("%s, %v", answer, err)
	}
	events.Stop()
	w.answers.running.Wait()
}
