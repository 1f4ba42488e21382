package kube

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// requests counts all requests since the last call.
func (w *world) requests() int {
	n := len(w.typed.Actions()) + len(w.dynamic.Actions())
	w.typed.ClearActions()
	w.dynamic.ClearActions()
	return n
}

// TestRequests: what an action on one more node asks of the API server is what estimates count with.
func TestRequests(t *testing.T) {
	w := newWorld(t, []runtime.Object{nodeThatIs("True")}, configMap)
	events := watch.NewFake()
	w.answers.begin = func(string) (watch.Interface, error) { return events, nil }
	w.answers.from("1") // as after the first task of a run
	// The agent answers once there is a task: what comes before the run expects it reaches nobody.
	w.dynamic.PrependReactor("create", "nodetasks", func(clienttesting.Action) (bool, runtime.Object, error) {
		go events.Modify(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "theseus.dev/v1alpha1",
			"kind": "NodeTask", "metadata": map[string]any{"name": w.taskName(joins.ID, joins.Verb())},
			"status": map[string]any{"phase": "Done"}}})
		return false, nil, nil
	})
	added := parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: ns}}`)
	for _, test := range []struct {
		name   string
		action step.Action
		want   int
	}{
		{"node", joins, estimate.RequestsOfVerb},
		{"patch", step.Action{ID: "p", Do: step.Patch{Ref: configRef, Merge: []byte(`{"data":{"x":"9"}}`)}},
			estimate.RequestsOfWrite},
		{"apply", step.Action{ID: "a", Do: step.Apply{Object: added}}, estimate.RequestsOfWrite},
		{"delete", step.Action{ID: "d", Do: step.Delete{Ref: configRef, LeaveEnding: true}}, estimate.RequestsOfWrite},
	} {
		w.requests()
		seen, err := w.Observe(t.Context(), test.action, nil)
		if err != nil || seen.Done {
			t.Errorf("%s: %+v, %v", test.name, seen, err)
		}
		if _, err := w.do(test.action); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if n := w.requests(); n != test.want {
			t.Errorf("%s: %d requests, want %d", test.name, n, test.want)
		}
	}
	events.Stop()
	w.answers.running.Wait()
}

// TestRestartsShareTheirSet: restarts on many nodes read their DaemonSet together, and none takes what was read before
// it began.
func TestRestartsShareTheirSet(t *testing.T) {
	set, revision, of := daemonSet()
	objects := []runtime.Object{set, revision(1, "old")}
	const nodes = 40
	for i := range nodes {
		name := fmt.Sprintf("n-%d", i)
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, of(name, "old"))
	}
	w := newWorld(t, objects)
	restart := func(i int) step.Restart {
		do := restartOnA.Do.(step.Restart)
		do.NodeName = fmt.Sprintf("n-%d", i)
		return do
	}
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() {
			if seen, err := w.observeRestart(context.Background(), restart(i), nil); err != nil || !seen.Done {
				t.Errorf("%+v, %v", seen, err)
			}
		})
	}
	all.Wait()
	if n := w.requests(); n > nodes+2*nodes/4 {
		t.Errorf("%d requests for %d nodes", n, nodes)
	}
	// The template changes, and the next restart begins.
	set.Generation, set.Status.ObservedGeneration = 3, 3
	if _, err := w.typed.AppsV1().DaemonSets("net").Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	newest := revision(2, "new")
	if _, err := w.typed.AppsV1().ControllerRevisions("net").Create(t.Context(), newest,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Millisecond)
	if seen, err := w.observeRestart(t.Context(), restart(0), nil); err != nil || seen.Done {
		t.Errorf("a pod of the former template is done: %+v, %v", seen, err)
	}
	if w.newestShared(t) != newest.Labels[appsv1.ControllerRevisionHashLabelKey] {
		t.Error("the former revision is kept")
	}
}

func (w *world) newestShared(t *testing.T) string {
	t.Helper()
	_, hash, err := w.sets.read(t.Context(), w.Actor, restartOnA.Do.(step.Restart).Ref, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// TestWaitsShareTheirPods: waits for the probe pods of many nodes read them together, and none takes what was read
// before it asked.
func TestWaitsShareTheirPods(t *testing.T) {
	const nodes = 40
	var objects []runtime.Object
	on := func(i int) string { return fmt.Sprintf("n-%d", i) }
	for i := range nodes {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-" + on(i), Namespace: "ns",
			Labels: map[string]string{"a": "b", manifest.LabelNode: on(i)}}, Spec: corev1.PodSpec{NodeName: on(i)}}
		if i != 7 {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		objects = append(objects, pod)
	}
	w := newWorld(t, objects)
	ready := func(i int) (bool, string, error) {
		return w.holds(context.Background(), step.Condition{Is: step.PodReady{Node: on(i), Namespace: "ns",
			Selector: "a=b," + manifest.LabelNode + "=" + on(i)}})
	}
	asked, begin := make(chan int, nodes), make(chan bool)
	w.typed.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		demands, _ := action.(clienttesting.ListAction).GetListRestrictions().Labels.Requirements()
		for _, demand := range demands {
			if demand.Key() == manifest.LabelNode {
				asked <- demand.Values().Len()
			}
		}
		<-begin
		return false, nil, nil
	})
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() {
			holds, missing, err := ready(i)
			if err != nil || holds == (i == 7) {
				t.Errorf("node %d: %v, %s, %v", i, holds, missing, err)
			}
		})
	}
	first := <-asked // the first list is under way, and all others wait for the next
	for joined, late := first, time.Now().Add(time.Minute); joined < nodes; time.Sleep(time.Millisecond) {
		w.nodePods.lock.Lock()
		if next := w.nodePods.all["ns\x00a=b"].next; next != nil {
			joined = first + len(next.values)
		}
		w.nodePods.lock.Unlock()
		if time.Now().After(late) {
			t.Errorf("%d of %d wait for a list", joined, nodes)
			break
		}
	}
	close(begin)
	all.Wait()
	if n := w.requests(); n > 2 {
		t.Errorf("%d lists for %d nodes, want 2 at most", n, nodes)
	}
	pod := objects[7].(*corev1.Pod).DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := w.typed.CoreV1().Pods("ns").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if holds, missing, err := ready(7); err != nil || !holds {
		t.Errorf("the pod is ready now, and is read as before: %s, %v", missing, err)
	}
}

// TestNodeLabel: only a selector with one value of the label of nodes can be joined with others.
func TestNodeLabel(t *testing.T) {
	for selector, want := range map[string][2]string{
		"a=b," + manifest.LabelNode + "=n": {"a=b", "n"},
		manifest.LabelNode + "=n":          {"", "n"},
		"a=b":                              {"a=b", ""},
		"":                                 {"", ""},
		manifest.LabelNode + "!=n":         {manifest.LabelNode + "!=n", ""},
		manifest.LabelNode + " in (n,m)":   {manifest.LabelNode + " in (n,m)", ""},
		"no selector=(":                    {"no selector=(", ""},
		"a in (b,c)," + manifest.LabelNode + "==n,!d": {"a in (b,c),!d", "n"},
	} {
		if rest, value := nodeLabel(selector); rest != want[0] || value != want[1] {
			t.Errorf("%q: %q, %q, want %q", selector, rest, value, want)
		}
	}
}
