package kube

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// The fakes of client-go keep objects and no rules. What these tests cannot show: what server-side apply
// defaults, owns and prunes (apply is a plain replacement here), conflicts of versions, deletion in the
// foreground (an object is gone at once, and what it owns stays), and what a controller does.

// world is a cluster of fakes, with a clock that only sleeping moves.
type world struct {
	*Actor
	t       *testing.T
	typed   *typedfake.Clientset
	dynamic *fake.FakeDynamicClient
	mu      sync.Mutex
	now     time.Time
	slept   func(n int) // what happens in the world during the n-th sleep, counted from 1
	sleeps  int
	notes   []string
}

// fixedMapper has nothing to look up again.
type fixedMapper struct{ *meta.DefaultRESTMapper }

func (fixedMapper) Reset() {}

// newWorld makes a cluster of pods and nodes, and of other objects given as YAML.
func newWorld(t *testing.T, typed []runtime.Object, documents ...string) *world {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	lists := map[schema.GroupVersionResource]string{}
	for _, kind := range []struct{ group, version, kind string }{
		{"", "v1", "ConfigMap"}, {"", "v1", "Pod"}, {"apps", "v1", "Deployment"}, {"apps", "v1", "ReplicaSet"},
		{"apps", "v1", "StatefulSet"}, {"apps", "v1", "DaemonSet"}, {"batch", "v1", "Job"},
		{"example.org", "v1", "Database"}, {"apiextensions.k8s.io", "v1", "CustomResourceDefinition"},
		{"theseus.dev", "v1alpha1", "NodeTask"}, {"theseus.dev", "v1alpha1", "Migration"},
		{"theseus.dev", "v1alpha1", "PlanPage"}, {"theseus.dev", "v1alpha1", "JournalPage"},
		{"crd.projectcalico.org", "v1", "BGPConfiguration"}, {"crd.projectcalico.org", "v1", "BGPPeer"},
		{"crd.projectcalico.org", "v1", "IPPool"}, {"crd.projectcalico.org", "v1", "FelixConfiguration"},
		{"crd.projectcalico.org", "v1", "BlockAffinity"},
		{"theseus.dev", "v1alpha1", "ProbePlan"}, {"theseus.dev", "v1alpha1", "ProbeReport"},
	} {
		gvk := schema.GroupVersionKind{Group: kind.group, Version: kind.version, Kind: kind.kind}
		mapper.Add(gvk, meta.RESTScopeNamespace)
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		lists[plural] = kind.kind + "List"
	}
	var objects []runtime.Object
	for _, document := range documents {
		objects = append(objects, parse(t, document))
	}
	w := &world{t: t, typed: typedfake.NewClientset(typed...), now: time.Unix(1_800_000_000, 0).UTC(),
		dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)}
	w.typed.PrependReactor("list", "pods", w.listPods)
	w.dynamic.PrependReactor("patch", "*", w.replaceByApply)
	w.Actor = &Actor{Typed: w.typed, Dynamic: w.dynamic, Mapper: fixedMapper{mapper}, Clock: w, Migration: "m",
		Note: func(text string) { w.mu.Lock(); w.notes = append(w.notes, text); w.mu.Unlock() }}
	return w
}

// listPods adds what the fake leaves out: selecting by node and by name.
func (w *world) listPods(action clienttesting.Action) (bool, runtime.Object, error) {
	list := action.(clienttesting.ListAction)
	all, err := w.typed.Tracker().List(list.GetResource(), corev1.SchemeGroupVersion.WithKind("Pod"),
		list.GetNamespace())
	if err != nil {
		return true, nil, err
	}
	found := &corev1.PodList{}
	for _, pod := range all.(*corev1.PodList).Items {
		if list.GetListRestrictions().Fields.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName,
			"metadata.name": pod.Name}) {
			found.Items = append(found.Items, pod)
		}
	}
	return true, found, nil
}

// replaceByApply stands in for server-side apply, which the fake does not have.
func (w *world) replaceByApply(action clienttesting.Action) (bool, runtime.Object, error) {
	patch := action.(clienttesting.PatchActionImpl)
	if patch.PatchType != types.ApplyPatchType {
		return false, nil, nil
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(patch.Patch, &object.Object); err != nil {
		return true, nil, err
	}
	if len(patch.PatchOptions.DryRun) > 0 {
		return true, object, nil
	}
	tracker, in := w.dynamic.Tracker(), patch.GetNamespace()
	if _, err := tracker.Get(patch.GetResource(), in, patch.Name); err != nil {
		return true, object, tracker.Create(patch.GetResource(), object, in)
	}
	return true, object, tracker.Update(patch.GetResource(), object, in)
}

// Now implements engine.Clock.
func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// Sleep implements engine.Clock: time passes, and the world goes on.
func (w *world) Sleep(ctx context.Context, d time.Duration) error {
	time.Sleep(100 * time.Microsecond) // who runs side by side with the sleeper gets its turn
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.now = w.now.Add(d)
	w.sleeps++
	if w.sleeps > 2000 {
		w.t.Error("2000 sleeps: it waits for what never comes")
		return context.DeadlineExceeded
	}
	if w.slept != nil {
		w.slept(w.sleeps)
	}
	return nil
}

// end makes the n-th sleep the one in which the action's time is over.
func (w *world) end(n int) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	w.slept = func(at int) {
		if at >= n {
			cancel(context.DeadlineExceeded)
		}
	}
	return ctx
}

func (w *world) do(action step.Action) (json.RawMessage, error) {
	w.t.Helper()
	return w.Do(context.Background(), action, nil)
}

func (w *world) see(action step.Action) engine.Observation {
	w.t.Helper()
	seen, err := w.Observe(context.Background(), action, nil)
	if err != nil {
		w.t.Fatalf("observe %s: %v", action.ID, err)
	}
	return seen
}

// read is the JSON of an object as it is now; empty when it does not exist.
func (w *world) read(ref step.Ref) []byte {
	w.t.Helper()
	object, err := w.get(context.Background(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	if object == nil {
		return nil
	}
	return jsonOf(object)
}

func parse(t *testing.T, document string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		t.Fatalf("%v in %s", err, document)
	}
	return object
}

const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns, labels: {keep: k, swap: a}}, data: {x: "1", gone: "2"}}`

var configRef = step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "c"}

func TestPatchAndItsInverse(t *testing.T) {
	for name, patch := range map[string]string{
		"changes":  `{"data":{"x":"9"}}`,
		"adds":     `{"data":{"new":"3"},"metadata":{"annotations":{"a":"b"}}}`,
		"deletes":  `{"data":{"gone":null}}`,
		"all":      `{"data":{"gone":null,"x":"9","new":"3"},"metadata":{"labels":{"swap":null}}}`,
		"no field": `{"data":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, configMap)
			before := w.read(configRef)
			action := step.Action{ID: "p", Do: step.Patch{Ref: configRef, Merge: json.RawMessage(patch)}}
			seen := w.see(action)
			if seen.Done || seen.Inverse == nil || seen.Inverse.ID != "p/back" {
				t.Fatalf("before: %+v", seen)
			}
			if _, err := w.do(action); err != nil {
				t.Fatal(err)
			}
			if again := w.see(action); !again.Done {
				t.Errorf("done, and yet: %+v", again)
			}
			if _, err := w.do(*seen.Inverse); err != nil {
				t.Fatal(err)
			}
			if after := w.read(configRef); !jsonpatch.Equal(before, after) {
				t.Errorf("restored by %s:\n%s\nwas\n%s", seen.Inverse.Do.(step.Patch).Merge, after, before)
			}
		})
	}
}

func TestPatchOfNothing(t *testing.T) {
	w := newWorld(t, nil)
	_, err := w.Observe(context.Background(),
		step.Action{Do: step.Patch{Ref: configRef, Merge: json.RawMessage(`{}`)}}, nil)
	wantError(t, err, "ConfigMap/ns/c does not exist")
}

func TestApplyAndDelete(t *testing.T) {
	w := newWorld(t, nil)
	create := step.Action{ID: "a", Do: step.Apply{Object: parse(t, configMap)}}
	made := w.see(create)
	if made.Done || made.Inverse.Op() != step.OpDelete || made.Inverse.Ref() != configRef {
		t.Fatalf("before it exists: %+v", made)
	}
	if _, err := w.do(create); err != nil {
		t.Fatal(err)
	}
	if seen := w.see(create); !seen.Done {
		t.Errorf("it exists as wanted: %+v", seen)
	}
	change := step.Action{ID: "b", Do: step.Apply{
		Object: parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}, data: {x: "7"}}`)}}
	changed := w.see(change)
	if changed.Done || changed.Inverse.Op() != step.OpApply {
		t.Fatalf("before the change: %+v", changed)
	}
	remove := step.Action{ID: "d", Do: step.Delete{Ref: configRef}}
	removed := w.see(remove)
	for _, action := range []step.Action{change, remove, remove} {
		if _, err := w.do(action); err != nil {
			t.Fatal(err)
		}
	}
	if !w.see(remove).Done || w.read(configRef) != nil {
		t.Error("deleted, and still there")
	}
	if _, err := w.do(*removed.Inverse); err != nil {
		t.Fatal(err)
	}
	if !jsonpatch.Equal(w.read(configRef), jsonOf(parse(t, configMap))) {
		t.Errorf("restored: %s", w.read(configRef))
	}
}

func TestKindsThatDoNotExist(t *testing.T) {
	w := newWorld(t, nil)
	ref := step.Ref{APIVersion: "nowhere/v1", Kind: "Nothing", Name: "x"}
	action := step.Action{Do: step.Delete{Ref: ref}}
	if !w.see(action).Done {
		t.Error("an object of an unknown kind is there")
	}
	if _, err := w.do(action); err != nil {
		t.Error(err)
	}
	_, err := w.do(step.Action{})
	wantError(t, err, `unknown operation ""`)
	if _, err := w.Observe(context.Background(), step.Action{}, nil); err == nil {
		t.Error("an unknown operation can be observed")
	}
}

func TestStripped(t *testing.T) {
	object := parse(t,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, uid: u, resourceVersion: "3", generation: 2,
		creationTimestamp: "2026-01-01T00:00:00Z", managedFields: [{manager: m}]}, status: {a: b}, data: {x: "1"}}`)
	want := parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {x: "1"}}`)
	if got := stripped(object); !jsonpatch.Equal(jsonOf(got), jsonOf(want)) {
		t.Errorf("%s", jsonOf(got))
	}
	if object.GetUID() != "u" {
		t.Error("the original was changed")
	}
}

// pod makes a pod that is Ready; change makes it something else.
func pod(namespace, name, node, address string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid")},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func ending(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func label(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
}
