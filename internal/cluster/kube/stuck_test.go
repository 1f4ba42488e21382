package kube

import (
	"context"
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

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

const agentSet = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: theseus-system, generation: 1},
	spec: {selector: {matchLabels: {app: agent}}}, status: {observedGeneration: 1, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberReady: 1}}`

func waiting(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		unready(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Image: "registry.test/agent:v9",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

func nodeThatIs(status corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
}

// TestWaitsThatArePointless end, and say what a person has to do.
func TestWaitsThatArePointless(t *testing.T) {
	agents := step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "theseus-system", Name: "agent"}
	wait := func(c step.Condition) step.Action { return step.Action{ID: "w", Do: step.Wait{Condition: c}} }
	rolled := wait(step.Condition{Is: step.Rolled{Ref: agents}})
	mine := label("app", "agent")
	for _, test := range []struct {
		name   string
		node   corev1.ConditionStatus
		pod    *corev1.Pod
		action step.Action
		words  string // empty: it is waited for until the context ends
	}{
		{"an image that no node can get", "True", pod("theseus-system", "agent-1", "a", "", mine,
			waiting("ImagePullBackOff", "Back-off pulling image:\n no such host")), rolled,
			"1 of 2 pods are ready: node a cannot get the image registry.test/agent:v9 of pod " +
				"theseus-system/agent-1: ImagePullBackOff: Back-off pulling image:  no such host"},
		{"the same of a probe pod", "True",
			pod("theseus-system", "agent-1", "a", "", mine, waiting("ErrImagePull", "")),
			wait(step.Condition{Is: step.PodReady{Node: "a", Namespace: "theseus-system", Selector: "app=agent"}}),
			"cannot get the image"},
		{"a container that cannot be made", "True", pod("theseus-system", "agent-1", "a", "", mine,
			waiting("CreateContainerConfigError", "secret \"key\" not found")), rolled,
			"node a cannot make container  of pod theseus-system/agent-1: CreateContainerConfigError: " +
				"secret \"key\" not found"},
		{"a node that is down", "Unknown", pod("theseus-system", "agent-1", "a", "", mine, unready), rolled,
			"node a is down (not Ready): bring it back, or remove it permanently (kubectl delete node a)"},
		{"a pod that cannot end on it", "Unknown", pod("theseus-system", "agent-1", "a", "", mine),
			wait(step.Condition{Is: step.PodGone{Node: "a", Namespace: "theseus-system", Selector: "app=agent"}}),
			"still there: 1 pod of app=agent: node a is down"},
		{"an agent on it", "Unknown", pod("theseus-system", "agent-1", "a", "", mine), joins,
			"no answer from the agent of a: node a is down"},
		{"a pod that another network serves", "True", pod("theseus-system", "agent-1", "a", "10.96.0.1", mine),
			wait(step.Condition{Is: step.PodReady{Node: "a", Namespace: "theseus-system", Selector: "app=agent",
				CIDRs: []string{"10.244.0.0/16"}}}),
			"has the address 10.96.0.1, which is not of 10.244.0.0/16: another network serves new pods of " +
				"a: theseus snapshot --nodes"},
		{"a pod of a node that is gone", "True", pod("theseus-system", "agent-1", "gone", "", mine, unready),
			rolled, ""},
		{"a slow start", "True", pod("theseus-system", "agent-1", "a", "", mine, waiting("ContainerCreating", "")),
			rolled, ""},
		{"a slow agent", "True", pod("theseus-system", "agent-1", "a", "", mine), joins, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{nodeThatIs(test.node), test.pod}, agentSet)
			begun := w.Now()
			_, err := w.Do(w.end(1000), test.action, nil)
			took := w.Now().Sub(begun)
			if test.words == "" {
				wantError(t, err, "context canceled")
				return
			}
			wantError(t, err, test.words)
			if temporary(err) || took < stuckFor || took > 2*stuckFor {
				t.Errorf("after %s, temporary %v", took, temporary(err))
			}
		})
	}
}

// TestWorkloadOfStaticPod: it is a workload by itself, with the name that plans give it, and not its node.
func TestWorkloadOfStaticPod(t *testing.T) {
	static := pod("kube-system", "etcd-a", "a", "198.18.0.2", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", Controller: new(true)}}
	})
	got, err := newWorld(t, nil).Workload(t.Context(), static)
	if err != nil || got != "Node/kube-system/etcd-a" {
		t.Errorf("it is %q (%v)", got, err)
	}
}

// TestWorkloadOfAnOperator: that it is not there yet is no trouble; when it has come, what ails its pods is told, and
// not borne for long.
func TestWorkloadOfAnOperator(t *testing.T) {
	w := newWorld(t, []runtime.Object{nodeThatIs("True")})
	typha := step.Ref{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "calico-system", Name: "calico-typha"}
	var came time.Time
	w.slept = func(int) {
		if since := time.Unix(1_800_000_000, 0).Add(2 * time.Minute); w.now.Before(since) || !came.IsZero() {
			return
		}
		came = w.now
		made := parse(t,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: calico-typha, namespace: calico-system, generation: 1},
  spec: {replicas: 1, selector: {matchLabels: {app: typha}}}, status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1}}`)
		if err := w.dynamic.Tracker().Create(schema.GroupVersionResource{Group: "apps", Version: "v1",
			Resource: "deployments"}, made, "calico-system"); err != nil {
			t.Error(err)
		}
		if err := w.typed.Tracker().Add(pod("calico-system", "typha-1", "a", "", label("app", "typha"),
			waiting("ErrImagePull", "no such host"))); err != nil {
			t.Error(err)
		}
	}
	_, err := w.do(step.Action{ID: "w", Do: step.Wait{Condition: step.Condition{Is: step.Rolled{Ref: typha}}}})
	wantError(t, err, "Deployment/calico-system/calico-typha: 0 of 1 pods are ready: node a cannot get the image "+
		"registry.test/agent:v9 of pod calico-system/typha-1: ErrImagePull: no such host")
	if took := w.Now().Sub(came); came.IsZero() || took < stuckFor || took > 2*stuckFor {
		t.Errorf("given up %s after it came", took)
	}
	if len(w.notes) == 0 || !strings.Contains(w.notes[len(w.notes)-1], "cannot get the image") {
		t.Errorf("told: %q", w.notes)
	}
}

// TestPodsThatAreNotCreated: the API server's answer to a workload's controller is told, with what a person can do; an
// event about another workload, or from long ago, is not.
func TestPodsThatAreNotCreated(t *testing.T) {
	const denied = `Error creating: pods "agent-x7k2p" is forbidden: exceeded quota: few, requested: pods=1`
	for _, test := range []struct {
		name, kind, object string
		ago                time.Duration
		words              string
	}{
		{"a quota", "DaemonSet", "agent", time.Minute, "1 of 2 pods are ready: the API server rejects " +
			"the pods of DaemonSet/theseus-system/agent: " +
			`pods "agent-x7k2p" is forbidden: exceeded quota: few, requested: pods=1`},
		{"the quota of another DaemonSet", "DaemonSet", "agents", time.Minute, "context canceled"},
		{"a quota of a Deployment's", "ReplicaSet", "agent-5d8f", time.Minute, "context canceled"},
		{"a quota of the day before", "DaemonSet", "agent", 24 * time.Hour, "context canceled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			at := metav1.NewTime(time.Unix(1_800_000_000, 0).Add(-test.ago))
			event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "theseus-system"},
				Reason: "FailedCreate", Message: denied, FirstTimestamp: at, LastTimestamp: at,
				InvolvedObject: corev1.ObjectReference{Kind: test.kind, Name: test.object,
					Namespace: "theseus-system"}}
			w := newWorld(t, []runtime.Object{nodeThatIs("True"), event,
				pod("theseus-system", "agent-1", "a", "", label("app", "agent"))}, agentSet)
			agents := step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "theseus-system", Name: "agent"}
			_, err := w.Do(w.end(1000), step.Action{ID: "w", Do: step.Wait{
				Condition: step.Condition{Is: step.Rolled{Ref: agents}}}}, nil)
			wantError(t, err, test.words)
			hint := engine.HintOf(err)
			if strings.Contains(hint, "raise the ResourceQuota") != strings.Contains(test.words, "quota") {
				t.Errorf("hint: %q", hint)
			}
		})
	}
}

// TestOfDeployment: events about its ReplicaSets are a Deployment's.
func TestOfDeployment(t *testing.T) {
	for kindAndName, want := range map[[2]string]bool{{"ReplicaSet", "web-5d8f"}: true, {"Deployment", "web"}: true,
		{"ReplicaSet", "web-api-5d8f"}: false, {"ReplicaSet", "web"}: false, {"Deployment", "web-5d8f"}: false,
		{"DaemonSet", "web-5d8f"}: false} {
		event := &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kindAndName[0], Name: kindAndName[1]}}
		if of(event, step.Ref{Kind: "Deployment", Name: "web"}) != want {
			t.Error(kindAndName, !want)
		}
	}
}

// TestResolved: the end of a problem is told, also if another one follows, or the wait ends with it; a problem that
// only gets other words is the same.
func TestResolved(t *testing.T) {
	lacks := func(pod, reason string) string { return outage.Unpulled("a", "reg.test/x", "shop/"+pod, reason) }
	w := newWorld(t, nil)
	var bearing patience
	for _, why := range []string{lacks("one", "ErrImagePull"), lacks("one", "ImagePullBackOff"),
		lacks("two", "ErrImagePull"), "ended once", "ended twice", "", "", "down"} {
		look := func(context.Context) (trouble, error) { return trouble{why: why, bears: forever}, nil }
		if err := w.bear(t.Context(), &bearing, look); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(stuckEvery)
	}
	w.relieved(&bearing)
	w.relieved(&bearing)
	want := []string{"waiting: " + lacks("one", "ErrImagePull"), "resolved: " + lacks("one", "ErrImagePull"),
		"waiting: " + lacks("two", "ErrImagePull"), "resolved: " + lacks("two", "ErrImagePull"),
		"waiting: ended once", "resolved: ended once", "waiting: down", "resolved: down"}
	if !slices.Equal(w.notes, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(w.notes, "\n"), strings.Join(want, "\n"))
	}
}

// TestResolvedWait: a wait that ends before the next look at its problem, and a condition that is polled, tell that it
// is over.
func TestResolvedWait(t *testing.T) {
	condition := step.Condition{Is: step.PodReady{Node: "a", Namespace: "theseus-system", Selector: "app=agent"}}
	for name, wait := range map[string]func(w *world) error{
		"a wait": func(w *world) error {
			w.slept = func(n int) {
				if n == 2 {
					w.heal()
				}
			}
			_, err := w.do(step.Action{ID: "w", Do: step.Wait{Condition: condition}})
			return err
		},
		"a condition": func(w *world) error {
			if _, _, err := w.Holds(t.Context(), condition); err != nil {
				return err
			}
			w.heal()
			_, _, err := w.Holds(t.Context(), condition)
			return err
		},
	} {
		w := newWorld(t, []runtime.Object{nodeThatIs("True"), pod("theseus-system", "agent-1", "a", "",
			label("app", "agent"), waiting("ErrImagePull", "no such host"))})
		err := wait(w)
		if n := len(w.notes); err != nil || n == 0 || !strings.HasPrefix(w.notes[n-1], "resolved: node a cannot get") {
			t.Errorf("%s: %v, told %q", name, err, w.notes)
		}
	}
}

// TestResolvedInAnOutage: a problem that ends while the API server is away is over when it is back, and one that lasts
// is the same.
func TestResolvedInAnOutage(t *testing.T) {
	agents := step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "theseus-system", Name: "agent"}
	ready := step.Condition{Is: step.PodReady{Node: "a", Namespace: "theseus-system", Selector: "app=agent"}}
	for name, wait := range map[string]func(w *world) error{
		"a wait": func(w *world) error {
			_, err := w.do(step.Action{ID: "w", Do: step.Wait{Condition: ready}})
			return err
		},
		"the pods of others": func(w *world) error {
			return classify(w.awaitWhole(t.Context(), workloadAt(agents), 1))
		},
		"a condition": func(w *world) error {
			for {
				holds, _, err := w.Holds(t.Context(), ready)
				if holds || err != nil {
					return err
				}
				if err := w.Sleep(t.Context(), stuckEvery); err != nil {
					return err
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			// it ails after the wait has begun, as those of others would be left alone otherwise
			w := newWorld(t, []runtime.Object{nodeThatIs("True"),
				pod("theseus-system", "agent-1", "a", "", label("app", "agent"), unready)}, agentSet)
			ails := func(reason string) {
				if err := w.typed.Tracker().Update(podResource, pod("theseus-system", "agent-1", "a", "",
					label("app", "agent"), waiting(reason, "no such host")), "theseus-system"); err != nil {
					t.Error(err)
				}
			}
			away := false
			w.typed.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return away, nil, apierrors.NewServiceUnavailable("away")
			})
			outage := func(reason string, last time.Duration) error {
				begun := w.now
				w.slept = func(int) {
					ails(reason)
					away = w.now.Sub(begun) >= last
				}
				err := wait(w)
				away = false
				w.now = w.now.Add(time.Minute)
				return err
			}
			if err := outage("ErrImagePull", 7*time.Second); !temporary(err) {
				t.Fatalf("the first outage: %v", err)
			}
			if err := outage("ImagePullBackOff", 7*time.Second); !temporary(err) {
				t.Fatalf("the second outage: %v", err)
			}
			count := func(prefix string) (n int) {
				for _, note := range w.notes {
					if strings.HasPrefix(note, prefix+"node a cannot get the image") {
						n++
					}
				}
				return n
			}
			said := 1
			if name == "a condition" {
				said = 0 // by the engine, as what is missing
			}
			if count("waiting: ") != said || count("resolved: ") != 0 {
				t.Errorf("in two outages, told %q", w.notes)
			}
			w.slept = nil
			w.heal()
			if err := wait(w); err != nil || count("waiting: ") != said || count("resolved: ") != 1 {
				t.Errorf("after them: %v, told %q", err, w.notes)
			}
		})
	}
}

// heal makes the pod of the agent ready.
func (w *world) heal() {
	if err := w.typed.Tracker().Update(podResource, pod("theseus-system", "agent-1", "a", "", label("app", "agent")),
		"theseus-system"); err != nil {
		w.t.Error(err)
	}
}

// TestPatienceBeginsAgain: what mends itself soon is forgotten.
func TestPatienceBeginsAgain(t *testing.T) {
	w := newWorld(t, nil)
	why := "away"
	var bearing patience
	look := func(context.Context) (trouble, error) { return lasting(why, nil) }
	for range 5 {
		for _, reason := range []string{"away", ""} {
			why = reason
			for range 4 {
				if err := w.bear(t.Context(), &bearing, look); err != nil {
					t.Fatal(err)
				}
				w.now = w.now.Add(stuckEvery)
			}
		}
	}
	why = "away"
	end := w.now.Add(stuckFor + stuckEvery)
	for w.now.Before(end) {
		if err := w.bear(t.Context(), &bearing, look); err != nil && w.now.Before(end.Add(-stuckEvery)) {
			t.Fatalf("gave up early: %v", err)
		}
		w.now = w.now.Add(time.Second)
	}
	if err := w.bear(t.Context(), &bearing, look); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("never gave up: %v", err)
	}
}
