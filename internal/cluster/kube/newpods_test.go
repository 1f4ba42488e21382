package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// kubelet says what a new pod's status is after some time; nil before it has one.
type kubelet func(age time.Duration) *corev1.PodStatus

// tries is the status of a pod with an address whose container has tried its paths.
func tries(tried path.Tried, ready bool) *corev1.PodStatus {
	text, _ := json.Marshal(tried)
	return &corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.1.9", ContainerStatuses: []corev1.ContainerStatus{
		{Name: "answer", Ready: ready},
		{Name: manifest.NewPodTries, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(text)}}}}}
}

// newPodOn makes a new pod on node a, whose kubelet and Events are given, and says what became of it.
func newPodOn(t *testing.T, ready corev1.NodeCondition, runs kubelet, refuse error, events ...corev1.Event) NewPod {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}}
	objects := []runtime.Object{node}
	for i := range events {
		events[i].Namespace, events[i].Name = v1alpha1.Namespace, fmt.Sprint("e", i)
		objects = append(objects, &events[i])
	}
	w := newWorld(t, objects)
	w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.ProbePlanSpec{
		Paths: []v1alpha1.Path{{ID: "a/old>b/old/udp", Class: path.ClassPodPod, Protocol: v1alpha1.UDP,
			Source: v1alpha1.Endpoint{Node: "a", Network: "old"}}}}})
	name, pods := manifest.NewPodName("a", "a"), schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	begun := w.now
	w.dynamic.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuse != nil, nil, refuse
	})
	w.slept = func(int) {
		made, err := w.dynamic.Tracker().Get(pods, v1alpha1.Namespace, name)
		if err != nil {
			return
		}
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(made.(*unstructured.Unstructured).Object,
			pod); err != nil {
			t.Error(err)
		}
		pod.UID = types.UID("uid")
		if status := runs(w.now.Sub(begun)); status != nil {
			pod.Status = *status
		}
		_ = w.typed.Tracker().Delete(pods, v1alpha1.Namespace, name)
		if err := w.typed.Tracker().Add(pod); err != nil {
			t.Error(err)
		}
	}
	w.slept(0)
	first := true
	w.typed.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if first { // the pod is there as soon as it is applied
			first = false
			w.mu.Lock()
			w.slept(0)
			w.mu.Unlock()
		}
		return false, nil, nil
	})
	made, err := (&NewPods{Actor: w.Actor, Image: "i"}).Make(context.Background(), "a", []string{"a"}, nil)
	if err != nil || len(made) != 1 || made[0].Node != "a" {
		t.Fatalf("%+v, %v", made, err)
	}
	return made[0]
}

// TestNewPod: a new pod that gets no network, or is not reachable, has failed, in the words of Kubernetes. What says
// nothing about the network is not measured.
func TestNewPod(t *testing.T) {
	ok := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	notReady := func(status corev1.ConditionStatus, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: "KubeletNotReady", Message: message}
	}
	whole, bad := path.Tried{Paths: 1, Millis: 900}, path.Tried{Paths: 3, Silent: []string{"a/new-pod>dns"}}
	pending := func(time.Duration) *corev1.PodStatus { return &corev1.PodStatus{Phase: corev1.PodPending} }
	warns := func(reason, message string, at int64) corev1.Event {
		return corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message,
			LastTimestamp: metav1.Unix(at, 0), InvolvedObject: corev1.ObjectReference{UID: "uid"}}
	}
	waiting := func(reason string) kubelet {
		return func(time.Duration) *corev1.PodStatus {
			return &corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "answer", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}
		}
	}
	for name, test := range map[string]struct {
		node               corev1.NodeCondition
		runs               kubelet
		refuse             error
		events             []corev1.Event
		failed, unmeasured string
	}{
		"good": {node: ok, runs: func(age time.Duration) *corev1.PodStatus {
			if age < 2*time.Second {
				return nil
			}
			return tries(whole, age >= 4*time.Second)
		}},
		"slow": {node: ok, runs: func(age time.Duration) *corev1.PodStatus {
			if age < 50*time.Second {
				return nil
			}
			return tries(whole, true)
		}},
		"silent path": {node: ok, runs: func(time.Duration) *corev1.PodStatus { return tries(bad, true) },
			failed: "no reliable answer on a/new-pod>dns"},
		"not reached by its kubelet": {node: ok,
			runs:   func(time.Duration) *corev1.PodStatus { return tries(whole, false) },
			failed: "the kubelet cannot reach it"},
		"no plugin": {node: ok, runs: pending, events: []corev1.Event{warns("FailedMount", "volume", 9),
			warns("FailedCreatePodSandBox", "old", 1), warns("FailedCreatePodSandBox", `plugin "flannel" is missing`, 5)},
			failed: `no address within 1m0s: FailedCreatePodSandBox: plugin "flannel" is missing`},
		"no Event": {node: ok, runs: pending, failed: "no Event says why"},
		"another reason": {node: ok, runs: pending, events: []corev1.Event{warns("Failed", "no disk", 1)},
			unmeasured: "no disk"},
		"no network of a node": {node: notReady("False", "container runtime network not ready: no cni plugin"),
			runs: pending, failed: "no cni plugin"},
		"node with no memory": {node: notReady("False", "out of memory"), runs: pending,
			unmeasured: "out of memory"},
		"node that is down": {node: notReady("Unknown", "Kubelet stopped; network"), runs: pending,
			unmeasured: "Kubelet stopped"},
		"no room": {node: ok, runs: func(time.Duration) *corev1.PodStatus {
			return &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "110 of 110"}
		}, unmeasured: "OutOfpods: 110 of 110"},
		"no image": {node: ok, runs: waiting("ImagePullBackOff"), unmeasured: "ImagePullBackOff"},
		"quota": {node: ok, runs: pending, refuse: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x",
			errors.New("exceeded quota")), unmeasured: "exceeded quota"},
		"its program fails": {node: ok, runs: func(time.Duration) *corev1.PodStatus {
			status := tries(whole, true)
			status.ContainerStatuses[1].State.Terminated.ExitCode = 137
			status.ContainerStatuses[1].State.Terminated.Reason = "OOMKilled"
			return status
		}, unmeasured: "OOMKilled"},
		"nonsense": {node: ok, runs: func(time.Duration) *corev1.PodStatus { return tries(path.Tried{}, true) },
			unmeasured: "nothing about paths"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPodOn(t, test.node, test.runs, test.refuse, test.events...)
			if (p.Failed == "") != (test.failed == "") || !strings.Contains(p.Failed, test.failed) ||
				(p.Unmeasured == "") != (test.unmeasured == "") || !strings.Contains(p.Unmeasured, test.unmeasured) {
				t.Errorf("%+v", p)
			}
			switch name {
			case "good":
				if p.AddressAfter < 2*time.Second || p.AddressAfter > 3*time.Second ||
					p.ReachableAfter < 4*time.Second {
					t.Errorf("%+v", p)
				}
			case "slow":
				if p.ReachableAfter < 50*time.Second {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

// TestOtherNewPod: new pods ask former ones of other nodes, each another one, and never one that failed.
func TestOtherNewPod(t *testing.T) {
	former := []NewPod{{Node: "a", Address: "1"}, {Node: "b", Address: "2"}, {Node: "c", Address: "3"},
		{Node: "d", Address: "4", Failed: "x"}, {Node: "e"}, {Node: "f", Address: "5", Unmeasured: "deleted"}}
	asked := map[string]bool{}
	for i, node := range []string{"a", "b", "c"} {
		one := other(former, i, node)
		if one.Node == node || one.Address == "" || one.Address == "4" || one.Address == "5" || asked[one.Address] {
			t.Errorf("%s asks %+v", node, one)
		}
		asked[one.Address] = true
	}
	if one := other(former[:1], 0, "a"); one.Address != "1" {
		t.Errorf("the only one: %+v", one)
	}
	if one := other(nil, 0, "a"); one.Address != "" {
		t.Errorf("of none: %+v", one)
	}
}

// TestNewPodExcused: a new pod that could not reach a former one says nothing if that one is gone, and has failed if it
// is there, or if another path failed too. One whose node has left says nothing, nor does one that could not reach
// nodes that have left. Without an answer of the API server, no failure is known.
func TestNewPodExcused(t *testing.T) {
	there := pod(v1alpha1.Namespace, "theseus-new-pod-b-b", "b", "10.244.2.9", label(manifest.LabelNewPod, "b"))
	there.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "answer", Ready: true}}
	objects := []runtime.Object{there}
	for _, name := range []string{"a", "b", "c"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w := newWorld(t, objects)
	former := []NewPod{{Node: "b", Address: "10.244.2.9"}, {Node: "c", Address: "10.244.3.9"}}
	n := &NewPods{Actor: w.Actor}
	alive, err := n.alive(t.Context(), former)
	if err != nil || len(alive) != 1 || alive[0].Node != "b" {
		t.Errorf("alive: %+v, %v", alive, err)
	}
	fails := func(node, target string, tried path.Tried) NewPod {
		p := NewPod{Node: node, Failed: "x", target: target, silent: tried.Blames(), over: true}
		for _, id := range append(tried.Silent, tried.Leaking...) {
			_, end, _ := strings.Cut(id, ">")
			parts := strings.Split(end, "/")
			p.tries = append(p.tries, v1alpha1.Path{ID: id,
				Target: v1alpha1.Endpoint{Node: parts[0], Network: parts[1]}})
		}
		p.tries = append(p.tries, v1alpha1.Path{ID: "other"})
		return p
	}
	silent := func(ids ...string) path.Tried { return path.Tried{Paths: 9, Silent: ids} }
	leaking, more := silent("a/new-pod>gone/old/udp"), silent("a/new-pod>gone/old/udp")
	leaking.Leaking, more.More = []string{"a/new-pod>gone/old/denied/udp"}, 1
	cases := []struct {
		pod    NewPod
		failed bool
	}{
		{fails("a", "10.244.2.9", silent("a/new-pod>b/new-pod/udp")), true},
		{fails("a", "10.244.3.9", silent("a/new-pod>c/new-pod/udp")), false},
		{fails("a", "10.244.3.9", silent("a/new-pod>c/new-pod/udp", "a/new-pod>b/old/udp")), true},
		{fails("a", "10.244.2.9", silent("a/new-pod>gone/old/udp", "a/new-pod>gone/host/udp")), false},
		{fails("a", "10.244.3.9", silent("a/new-pod>gone/old/udp", "a/new-pod>c/new-pod/udp")), false},
		{fails("a", "10.244.2.9", silent("a/new-pod>gone/old/udp", "a/new-pod>c/old/udp")), true},
		{fails("a", "10.244.2.9", leaking), true},
		{fails("a", "10.244.2.9", more), true},
		{fails("gone", "", path.Tried{}), false},
	}
	pods := make([]NewPod, len(cases))
	for i := range cases {
		pods[i] = cases[i].pod
	}
	if err := n.excuse(t.Context(), former, pods); err != nil {
		t.Fatal(err)
	}
	for i, one := range cases {
		if failed := one.failed; (pods[i].Failed != "") != failed || (pods[i].Unmeasured == "") != failed ||
			pods[i].decided != failed && len(one.pod.silent) == 0 {
			t.Errorf("%d: %+v", i, pods[i])
		}
	}
	w.typed.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("away")
	})
	pods = []NewPod{fails("a", "10.244.2.9", silent("a/new-pod>b/old/udp"))}
	if err := n.excuse(t.Context(), former, pods); err == nil || pods[0].decided {
		t.Errorf("%+v, %v", pods[0], err)
	}
}

// TestNewPodUndecided: if it is not known whether what a pod could not reach is there, the pod has not failed. It has
// if only the context has ended meanwhile.
func TestNewPodUndecided(t *testing.T) {
	for _, away := range []bool{false, true} {
		w := newWorld(t, []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
		w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.ProbePlanSpec{
			Paths: []v1alpha1.Path{{ID: "a/old>service/old/udp", Class: path.ClassPodPod, Protocol: v1alpha1.UDP,
				Source: v1alpha1.Endpoint{Node: "a", Network: "old"}}}}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		made := pod(v1alpha1.Namespace, manifest.NewPodName("a", "a"), "a", "10.244.1.9",
			label(manifest.LabelNewPod, "a"))
		made.Status = *tries(path.Tried{Paths: 1, Silent: []string{"a/new-pod>service/old/udp"}}, true)
		begun := false
		w.dynamic.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			begun = true
			return true, &unstructured.Unstructured{}, nil
		})
		w.typed.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if begun {
				cancel()
			}
			return true, &corev1.PodList{Items: []corev1.Pod{*made}}, nil
		})
		w.typed.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away, nil, apierrors.NewServiceUnavailable("away")
		})
		got, err := (&NewPods{Actor: w.Actor, Image: "i"}).Make(ctx, "a", []string{"a"}, nil)
		if err == nil || (len(got) == 0) != away {
			t.Errorf("away %t: %+v, %v", away, got, err)
		}
	}
}

// TestNewPodStaying: new pods do not try to reach nodes that are about to leave, however that shows.
func TestNewPodStaying(t *testing.T) {
	node := func(name string, change func(*corev1.Node)) *corev1.Node {
		one := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(one)
		return one
	}
	nodes := []runtime.Object{node("stays", func(*corev1.Node) {}),
		node("cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		node("tainted", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted"}} }),
		node("ends", func(n *corev1.Node) {
			n.DeletionTimestamp, n.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"x"}
		})}
	var paths []v1alpha1.Path
	var former []NewPod
	for _, name := range []string{"stays", "cordoned", "tainted", "ends", "gone"} {
		paths = append(paths, v1alpha1.Path{Target: v1alpha1.Endpoint{Node: name}})
		former = append(former, NewPod{Node: name})
	}
	n := &NewPods{Actor: newWorld(t, nodes).Actor}
	left, targets, err := n.staying(t.Context(), append(paths, v1alpha1.Path{ID: "service"}), former)
	if err != nil || len(left) != 2 || left[0].Target.Node != "stays" || len(targets) != 1 ||
		targets[0].Node != "stays" {
		t.Errorf("%+v, %+v, %v", left, targets, err)
	}
}
