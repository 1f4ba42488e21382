package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// evictions plays the eviction API: allow says whether the n-th request for a pod, from 1, is let through.
// A pod that is let go is gone at once; when its workload makes another one is the test's to say.
type evictions struct {
	*world
	allow func(name string, n int) error
	asked map[string]int
	order []string
	// ready is how many pods were Ready when each was evicted.
	ready []int
}

func (w *world) evictions(allow func(name string, n int) error) *evictions {
	e := &evictions{world: w, allow: allow, asked: map[string]int{}}
	w.typed.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		name := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		e.asked[name]++
		if err := e.allow(name, e.asked[name]); err != nil {
			return true, nil, err
		}
		e.order, e.ready = append(e.order, name), append(e.ready, e.countReady())
		return true, nil, w.typed.Tracker().Delete(podResource, action.GetNamespace(), name)
	})
	return e
}

func always(string, int) error { return nil }

func (e *evictions) countReady() (n int) {
	all, err := e.typed.Tracker().List(podResource, corev1.SchemeGroupVersion.WithKind("Pod"), "shop")
	if err != nil {
		e.t.Error(err)
		return 0
	}
	for _, one := range all.(*corev1.PodList).Items {
		if cluster.PodReady(&one) {
			n++
		}
	}
	return n
}

// recreate recreates a pod, on the new network of another node.
func (w *world) recreate(name string, like func(*corev1.Pod)) {
	if err := w.typed.Tracker().Add(pod("shop", name+"-again", "b", "10.96.0.9", like)); err != nil {
		w.t.Error(err)
	}
}

func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name,
			UID: "u", Controller: &yes}}
		label("app", strings.SplitN(name, "-", 2)[0])(p)
	}
}

const (
	webSet = `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, namespace: shop,
		ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: d, controller: true}]}, spec: {selector: {matchLabels: {app: web}}}}`
	webDeployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 2, selector: {matchLabels: {app: web}}}}`
	// ownedStateful belongs to an operator's own kind, which says nothing of pods.
	ownedStateful = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop,
		ownerReferences: [{apiVersion: example.org/v1, kind: Database, name: main, uid: o, controller: true}]}, spec: {replicas: 2, selector: {matchLabels: {app: db}}}}`
	database = `{apiVersion: example.org/v1, kind: Database, metadata: {name: main, namespace: shop}}`
)

var onA = step.Action{ID: "e", Do: step.Evict{Pods: step.PodSet{Node: "a", CIDRs: []string{"10.244.0.0/16"}}}}

func (w *world) evicted() (Evicted, error) {
	return w.evictedSince(w.see(onA).Before)
}

// evictedSince evicts with what was seen before the first try.
func (w *world) evictedSince(before json.RawMessage) (Evicted, error) {
	var done Evicted
	answer, err := w.Do(context.Background(), onA, before)
	if answer != nil {
		if err := json.Unmarshal(answer, &done); err != nil {
			w.t.Fatal(err)
		}
	}
	return done, err
}

func TestEvictHeldByItsBudget(t *testing.T) {
	w := newWorld(t, []runtime.Object{pod("shop", "web-a", "a", "10.244.1.5", ownedBy("ReplicaSet", "web-1"))},
		webSet, webDeployment)
	w.evictions(func(_ string, n int) error {
		if n <= 4 {
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}
		return nil
	})
	w.slept = func(n int) {
		if n == 6 {
			w.recreate("web-a", ownedBy("ReplicaSet", "web-1"))
		}
	}
	denied := 0
	w.Denied = func(pod *corev1.Pod, why string) {
		denied++
		if pod.Name != "web-a" || why != "" {
			t.Errorf("denied: %s: %s", pod.Name, why)
		}
	}
	done, err := w.evicted()
	if denied != 4 {
		t.Errorf("told of %d denials", denied)
	}
	want := EvictedPod{Namespace: "shop", Name: "web-a", Workload: "Deployment/shop/web",
		HeldMillis: 250 + 500 + 1000 + 2000, WholeMillis: 500}
	if err != nil || !slices.Equal(done.Pods, []EvictedPod{want}) {
		t.Errorf("%+v, %v", done.Pods, err)
	}
	if !slices.Contains(w.notes, "waiting: a PodDisruptionBudget denies the eviction of pod shop/web-a") {
		t.Errorf("said: %q", w.notes)
	}
}

func TestEvictOneAfterAnother(t *testing.T) {
	for _, test := range []struct{ name, kind, owner, workload string }{
		{"Deployment", "ReplicaSet", "web-1", "Deployment/shop/web"},
		{"StatefulSet of an operator", "StatefulSet", "db", "StatefulSet/shop/db"},
	} {
		t.Run(test.name, func(t *testing.T) {
			like := ownedBy(test.kind, test.owner)
			w := newWorld(t, []runtime.Object{pod("shop", "p1", "a", "10.244.1.5", like),
				pod("shop", "p2", "a", "10.244.1.6", like)},
				webSet, webDeployment, ownedStateful, database)
			e := w.evictions(always)
			w.slept = func(n int) {
				if n%3 == 0 && len(e.order) > n/3-1 {
					w.recreate(e.order[n/3-1], like)
				}
			}
			done, err := w.evicted()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(e.order, []string{"p1", "p2"}) || !slices.Equal(e.ready, []int{2, 2}) {
				t.Errorf("evicted %v with %v ready", e.order, e.ready)
			}
			for _, one := range done.Pods {
				if one.Workload != test.workload || one.WholeMillis != 750 {
					t.Errorf("%+v", one)
				}
			}
		})
	}
}

// An outage of the API server between two pods does not make the second try, by whichever process, content with
// less.
func TestEvictAfterAnOutage(t *testing.T) {
	like := ownedBy("ReplicaSet", "web-1")
	w := newWorld(t, []runtime.Object{pod("shop", "p1", "a", "10.244.1.5", like),
		pod("shop", "p2", "a", "10.244.1.6", like)}, webSet, webDeployment)
	e := w.evictions(always)
	away := false
	w.typed.PrependReactor("*", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, apierrors.NewServiceUnavailable("away")
	})
	w.slept = func(int) { away = true }
	before := w.see(onA).Before
	if _, err := w.evictedSince(before); !temporary(err) {
		t.Fatalf("an outage: %v", err)
	}
	done, err := w.evictedSince(before)
	if !temporary(err) || len(done.Pods) != 1 || done.Pods[0].Name != "p1" {
		t.Errorf("a try that failed at its beginning: %+v, %v", done.Pods, err)
	}
	away = false
	w.slept = func(n int) {
		if len(e.order) == 1 && n == 5 {
			w.recreate("p1", like)
		}
		if len(e.order) == 2 && n == 9 {
			w.recreate("p2", like)
		}
	}
	if done, err = w.evictedSince(before); err != nil {
		t.Fatal(err)
	}
	if len(done.Pods) != 2 || done.Pods[0].Name != "p1" || done.Pods[1].Name != "p2" {
		t.Errorf("the answer, which alone is recorded, names %+v", done.Pods)
	}
	if got := e.countReady(); got != 2 || !slices.Equal(e.ready, []int{2, 2}) {
		t.Errorf("%d pods ready at the end, evicted %v with %v ready", got, e.order, e.ready)
	}
}

// TestMoved: a pod that two tries of an attempt have asked to go is one, and another attempt, or action, begins without
// the pods of those before.
func TestMoved(t *testing.T) {
	var all moved
	pod := func(name string, held, whole int64) EvictedPod {
		return EvictedPod{Namespace: "shop", Name: name, HeldMillis: held, WholeMillis: whole}
	}
	all.begin("e")
	all.add("e", []EvictedPod{pod("p2", 1, 20)})
	all.add("other", []EvictedPod{pod("p9", 1, 1)})
	want := []EvictedPod{pod("p1", 0, 5), pod("p2", 3, 50)}
	if got := all.add("e", []EvictedPod{pod("p1", 0, 5), pod("p2", 2, 30)}); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	all.begin("e")
	if got := all.add("e", nil); len(got) != 0 {
		t.Errorf("another attempt: %+v", got)
	}
}

// That one workload meets an outage ends the moving of the others; the error is still the outage.
func TestEvictTellsOutagesFromFailures(t *testing.T) {
	w := newWorld(t, []runtime.Object{
		pod("shop", "p1", "a", "10.244.1.5", ownedBy("ReplicaSet", "web-1")),
		pod("shop", "p2", "a", "10.244.1.6", ownedBy("StatefulSet", "db")),
	}, webSet, webDeployment, ownedStateful)
	w.evictions(func(name string, n int) error {
		if name == "p1" && n > 3 {
			return apierrors.NewServiceUnavailable("away")
		}
		return apierrors.NewTooManyRequests("budget", 0)
	})
	if _, err := w.evicted(); !temporary(err) || strings.Contains(err.Error(), "p2") {
		t.Errorf("%v", err)
	}
}

// TestEvictOfSeveralNodes: two nodes are emptied together, and still no workload misses two pods, nor all of them more
// than five.
func TestEvictOfSeveralNodes(t *testing.T) {
	const workloads = 4
	var objects []runtime.Object
	var documents []string
	for i := range workloads {
		name := fmt.Sprintf("w%d", i)
		like := func(p *corev1.Pod) { ownedBy("ReplicaSet", name+"-1")(p); p.Labels = map[string]string{"app": name} }
		documents = append(documents, strings.ReplaceAll(webSet, "web", name),
			strings.NewReplacer("web", name, "replicas: 2", "replicas: 4").Replace(webDeployment))
		for j, node := range []string{"a", "a", "b", "b"} {
			objects = append(objects,
				pod("shop", fmt.Sprintf("%s-%d", name, j), node, fmt.Sprintf("10.244.%d.%d", i, j), like))
		}
	}
	w := newWorld(t, objects, documents...)
	e := w.evictions(always)
	w.slept = func(int) { // what went comes again
		for _, name := range e.order {
			app, _, _ := strings.Cut(name, "-")
			again := pod("shop", name+"-again", "c", "10.96.0.9", ownedBy("ReplicaSet", app+"-1"), func(p *corev1.Pod) {
				p.Labels = map[string]string{"app": app}
			})
			if err := w.typed.Tracker().Add(again); err != nil {
				t.Error(err)
			}
		}
		e.order = nil
	}
	var both sync.WaitGroup
	before := map[string]json.RawMessage{}
	for _, node := range []string{"a", "b"} {
		before[node] = w.see(step.Action{ID: node, Do: step.Evict{
			Pods: step.PodSet{Node: node, CIDRs: []string{"10.244.0.0/16"}}}}).Before
	}
	var moved [2]Evicted
	for i, node := range []string{"a", "b"} {
		both.Go(func() {
			answer, err := w.Do(t.Context(), step.Action{ID: node, Do: step.Evict{
				Pods: step.PodSet{Node: node, CIDRs: []string{"10.244.0.0/16"}}}}, before[node])
			if err != nil || json.Unmarshal(answer, &moved[i]) != nil {
				t.Errorf("node %s: %v", node, err)
			}
		})
	}
	both.Wait()
	if len(moved[0].Pods) != 2*workloads || len(moved[1].Pods) != 2*workloads {
		t.Errorf("moved %d and %d", len(moved[0].Pods), len(moved[1].Pods))
	}
	// Before each eviction all but those that were missing already were ready.
	for i, ready := range e.ready {
		if missing := 4*workloads - ready; missing > min(workloads, step.SideBySide) {
			t.Errorf("with eviction %d, %d pods were missing", i, missing)
		}
	}
}

// TestEvictOfWhatEnds: pods of a workload that is being deleted, or whose namespace is, are evicted, and no others are
// waited for, although the workload still wants them.
func TestEvictOfWhatEnds(t *testing.T) {
	now := metav1.Now()
	for _, test := range []struct {
		why                 string
		namespace, workload *metav1.Time
		finalizer           string
		waits               bool
	}{
		{"its namespace is being deleted", &now, nil, "", false},
		{"it is being deleted", nil, &now, metav1.FinalizerDeleteDependents, false},
		{"", nil, &now, "example.com/hold", true}, // its ReplicaSet replaces pods meanwhile
		{"", nil, nil, "", true},
	} {
		why, deployment := test.why, parse(t, webDeployment)
		deployment.SetDeletionTimestamp(test.workload)
		deployment.SetFinalizers([]string{test.finalizer})
		text, err := deployment.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, []runtime.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: test.namespace,
				Finalizers: []string{"kubernetes"}}},
			pod("shop", "p1", "a", "10.244.1.5", ownedBy("ReplicaSet", "web-1"))}, webSet, string(text))
		w.evictions(always)
		begun := w.Now()
		done, err := w.Do(w.end(100), onA, w.see(onA).Before)
		if (err != nil) != test.waits {
			t.Fatalf("%q: %s, %v", why, done, err)
		}
		if noted := strings.Join(w.notes, "\n"); !test.waits &&
			(!strings.Contains(noted, "not waiting for pods of Deployment/shop/web: "+why) ||
				w.Now().Sub(begun) > time.Minute) {
			t.Errorf("%q: after %s: %s", why, w.Now().Sub(begun), noted)
		}
	}
}

func TestEvictScaledDownMeanwhile(t *testing.T) {
	w := newWorld(t, []runtime.Object{pod("shop", "p1", "a", "10.244.1.5", ownedBy("ReplicaSet", "web-1"))},
		webSet, webDeployment)
	w.evictions(always)
	w.slept = func(n int) {
		if n != 2 {
			return
		}
		scaled := parse(t, strings.Replace(webDeployment, "replicas: 2", "replicas: 0", 1))
		if err := w.dynamic.Tracker().Update(scaled.GroupVersionKind().GroupVersion().WithResource("deployments"),
			scaled, "shop"); err != nil {
			t.Error(err)
		}
	}
	if done, err := w.evicted(); err != nil || len(done.Pods) != 1 || done.Pods[0].WholeMillis != 500 {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestEvictRefusesBarePods(t *testing.T) {
	w := newWorld(t, []runtime.Object{
		pod("shop", "a-web", "a", "10.244.1.5", ownedBy("ReplicaSet", "web-1")),
		pod("shop", "bare", "a", "10.244.1.6"),
	}, webSet, webDeployment)
	e := w.evictions(always)
	_, err := w.evicted()
	wantError(t, err, "pod shop/bare: no controller would recreate it")
	if len(e.order) != 0 {
		t.Errorf("moved %v before it refused", e.order)
	}
}

func TestEvictLeavesAlone(t *testing.T) {
	like := ownedBy("ReplicaSet", "web-1")
	w := newWorld(t, []runtime.Object{
		pod("shop", "other-node", "b", "10.244.1.5", like),
		pod("shop", "new-network", "a", "10.96.0.5", like),
		pod("shop", "no-address", "a", "", like),
		pod("shop", "host", "a", "10.244.1.6", like, func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		pod("shop", "finished", "a", "10.244.1.7", like, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("shop", "failed", "a", "10.244.1.8", like, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		pod("shop", "static", "a", "10.244.1.9", func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}),
		pod("theseus-system", "theseus-probe-old-a", "a", "10.244.1.10"),
	}, webSet, webDeployment)
	e := w.evictions(always)
	if seen := w.see(onA); !seen.Done {
		t.Errorf("something is left to do: %s", seen.Before)
	}
	if done, err := w.evicted(); err != nil || len(done.Pods) != 0 || len(e.asked) != 0 {
		t.Errorf("%+v, %v, asked %v", done, err, e.asked)
	}
}

// byBudget is how the API server refuses an eviction (pkg/registry/core/pod/storage/eviction.go).
func byBudget(message string) error {
	held := apierrors.NewTooManyRequests("no", 0)
	held.ErrStatus.Details.Causes = append(held.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
	return held
}

func TestEvictionThatDoesNotEnd(t *testing.T) {
	for _, test := range []struct {
		name  string
		allow error
		words string
	}{
		{"budget", apierrors.NewTooManyRequests("no", 0), "pod shop/p1: its PodDisruptionBudget denies the eviction"},
		{"a budget by its name", byBudget("The disruption budget web needs 2 healthy pods and has 2 currently"),
			"pod shop/p1: its PodDisruptionBudget denies the eviction: The disruption budget web needs 2 healthy " +
				"pods and has 2 currently: no"},
		{"forbidden", apierrors.NewForbidden(podResource.GroupResource(), "p1", fmt.Errorf("no right")), "no right"},
		{"never whole", nil, "Deployment/shop/web has 0 of 1 pods ready"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{pod("shop", "p1", "a", "10.244.1.5", ownedBy("ReplicaSet", "web-1"))},
				webSet, webDeployment)
			w.evictions(func(string, int) error { return test.allow })
			_, err := w.Do(w.end(20), onA, nil)
			wantError(t, err, test.words)
		})
	}
}

// A process that was killed after its last eviction leaves a workload that is not whole: the next one waits.
func TestEvictDoneIsWhole(t *testing.T) {
	like := ownedBy("ReplicaSet", "web-1")
	w := newWorld(t, []runtime.Object{pod("shop", "p1", "a", "10.244.1.5", like),
		pod("shop", "p2", "b", "10.96.0.6", like)}, webSet, webDeployment)
	before := w.see(onA).Before
	if err := w.typed.Tracker().Delete(podResource, "shop", "p1"); err != nil {
		t.Fatal(err)
	}
	look := func() bool {
		seen, err := w.Observe(t.Context(), onA, before)
		if err != nil {
			t.Fatal(err)
		}
		return seen.Done
	}
	if look() {
		t.Error("1 of 2 pods is whole")
	}
	w.slept = func(n int) {
		if n == 5 {
			w.recreate("p1", like)
		}
	}
	if _, err := w.evictedSince(before); err != nil || w.sleeps < 5 || !look() {
		t.Errorf("%v after %d sleeps, done %v", err, w.sleeps, look())
	}
}

// A pod that takes long to end holds up no other pod of its workload, which is whole without it; the eviction is
// over when it has ended.
func TestEvictDoesNotWaitForTheEnd(t *testing.T) {
	like := ownedBy("ReplicaSet", "web-1")
	w := newWorld(t, []runtime.Object{pod("shop", "p1", "a", "10.244.1.5", like),
		pod("shop", "p2", "a", "10.244.1.6", like)}, webSet, webDeployment)
	var order []string
	w.typed.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		name := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		order = append(order, name)
		now := metav1.Now()
		ending := pod("shop", name, "a", "10.244.1.5", like, func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &now, []string{"x"}
		})
		if err := w.typed.Tracker().Update(podResource, ending, "shop"); err != nil {
			t.Error(err)
		}
		w.recreate(name, like)
		return true, nil, nil
	})
	ended := 0
	w.slept = func(n int) {
		if len(order) == 2 && n >= 5 && ended < 2 {
			ended++
			if err := w.typed.Tracker().Delete(podResource, "shop", order[2-ended]); err != nil {
				t.Error(err)
			}
		}
	}
	done, err := w.evicted()
	if err != nil || !slices.Equal(order, []string{"p1", "p2"}) || len(done.Pods) != 2 {
		t.Fatalf("evicted %v: %+v, %v", order, done, err)
	}
	if ended != 2 {
		t.Errorf("it was over when %d of 2 had ended", ended)
	}
	for _, one := range done.Pods {
		if one.WholeMillis != 0 {
			t.Errorf("%s was waited for although its workload was whole: %+v", one.Name, one)
		}
	}
}

// TestEvictOfAForeignKind: of a workload that the user may not read, the scale tells which pods it has and how many it
// wants; without a scale, the eviction waits until the pod is gone.
func TestEvictOfAForeignKind(t *testing.T) {
	for _, test := range []struct {
		name, scale string
		waits       int // until the pod has its replacement
	}{
		{"with a scale", `{apiVersion: autoscaling/v1, kind: Scale, spec: {replicas: 2}, status: {selector: "app=main"}}`, 3},
		{"scale without a selector", `{apiVersion: autoscaling/v1, kind: Scale, spec: {replicas: 2}}`, 0},
		{"without", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			like := func(p *corev1.Pod) {
				ownedBy("Database", "main")(p)
				p.OwnerReferences[0].APIVersion = "example.org/v1"
			}
			w := newWorld(t, []runtime.Object{pod("shop", "p1", "a", "10.244.1.5", like),
				pod("shop", "p2", "b", "10.244.2.5", like)}, database)
			databases := schema.GroupResource{Group: "example.org", Resource: "databases"}
			w.dynamic.PrependReactor("get", "databases",
				func(action clienttesting.Action) (bool, runtime.Object, error) {
					switch {
					case action.GetSubresource() == "":
						return true, nil, apierrors.NewForbidden(databases, "main", errors.New("no role has it"))
					case test.scale == "":
						return true, nil, apierrors.NewNotFound(databases, "main")
					}
					return true, parse(t, test.scale), nil
				})
			w.evictions(always)
			waits := 0
			w.slept = func(n int) {
				if waits = n; n == 3 {
					w.recreate("p1", like)
				}
			}
			done, err := w.evicted()
			if err != nil || len(done.Pods) != 1 || waits != test.waits {
				t.Errorf("%+v after %d waits: %v", done.Pods, waits, err)
			}
		})
	}
}
