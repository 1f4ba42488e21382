package observe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

var epoch = time.Date(2026, 3, 14, 9, 30, 0, 0, time.UTC)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func node(name string, ready corev1.ConditionStatus, since int, change func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.34.2", BootID: "one"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready,
				LastTransitionTime: metav1.NewTime(at(since)), Message: "Kubelet stopped posting node status."}}}}
	if change != nil {
		change(&n)
	}
	return n
}

func daemons(generation, observed int64, desired, updated, ready int32) appsv1.DaemonSet {
	return appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
		Name: "net", Generation: generation},
		Status: appsv1.DaemonSetStatus{ObservedGeneration: observed, DesiredNumberScheduled: desired,
			UpdatedNumberScheduled: updated, NumberReady: ready}}
}

func pod(namespace, name string, made, restarts int, change func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		CreationTimestamp: metav1.NewTime(at(made)), Labels: map[string]string{"pod-template-hash": "abc"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-abc", Controller: new(true)}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{RestartCount: int32(restarts)}}}}
	if change != nil {
		change(&p)
	}
	return p
}

func lines(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s %s\n", e.At.UTC().Format(time.TimeOnly), e)
	}
	return b.String()
}

// TestDiff: what happened between two looks, with the time that the cluster itself knows, or with both looks where they
// are far apart.
func TestDiff(t *testing.T) {
	ready, not := corev1.ConditionTrue, corev1.ConditionUnknown
	for name, test := range map[string]struct {
		before, after Objects
		apart         int // seconds
		want          string
	}{
		"nothing": {Objects{Nodes: []corev1.Node{node("a", ready, -100, nil)},
			DaemonSets: []appsv1.DaemonSet{daemons(1, 1, 3, 3, 3)}},
			Objects{Nodes: []corev1.Node{node("a", ready, -100, nil)},
				DaemonSets: []appsv1.DaemonSet{daemons(1, 1, 3, 3, 3)}}, 10, ""},
		"a node is not Ready": {Objects{Nodes: []corev1.Node{node("a", ready, -100, nil)}},
			Objects{Nodes: []corev1.Node{node("a", not, 4, nil)}}, 10,
			"09:30:04 node a is not Ready: Kubelet stopped posting node status.\n"},
		"a node was not Ready between two looks": {Objects{Nodes: []corev1.Node{node("a", ready, -100, nil)}},
			Objects{Nodes: []corev1.Node{node("a", ready, 4000, func(n *corev1.Node) {
				n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.BootID, n.Spec.Unschedulable = "v1.34.4",
					"two", true
			})}}, 7200, "10:36:40 node a is Ready again, after it was not Ready for some time since the previous " +
				"look\n" +
				"11:30:00 node a was restarted (at some time since 09:30:00)\n" +
				"11:30:00 node a runs kubelet v1.34.4, before v1.34.2 (at some time since 09:30:00)\n" +
				"11:30:00 node a was cordoned (at some time since 09:30:00)\n"},
		"nodes come and go": {Objects{Nodes: []corev1.Node{node("a", ready, -100, nil)}},
			Objects{Nodes: []corev1.Node{node("b", ready, 2, nil)}}, 10,
			"09:30:10 node a left the cluster\n09:30:10 node b joined\n"},
		"a rollout begins": {Objects{DaemonSets: []appsv1.DaemonSet{daemons(1, 1, 3, 3, 3)}},
			Objects{DaemonSets: []appsv1.DaemonSet{daemons(2, 1, 3, 3, 3)}}, 10,
			"09:30:10 DaemonSet kube-system/net was changed (generation 2, before 1): a rollout begins\n"},
		"a rollout ends": {Objects{DaemonSets: []appsv1.DaemonSet{daemons(2, 2, 3, 2, 2)}},
			Objects{DaemonSets: []appsv1.DaemonSet{daemons(2, 2, 3, 3, 3)}}, 10,
			"09:30:10 DaemonSet kube-system/net is complete: all 3 pods are updated and ready\n"},
		"a rollout between two looks": {Objects{DaemonSets: []appsv1.DaemonSet{daemons(1, 1, 3, 3, 3)}},
			Objects{DaemonSets: []appsv1.DaemonSet{daemons(2, 2, 3, 3, 3)}}, 600,
			"09:40:00 DaemonSet kube-system/net was changed and rolled out (generation 2, before 1) (at " +
				"some time since 09:30:00)\n"},
		"a pod of a DaemonSet is away": {Objects{DaemonSets: []appsv1.DaemonSet{daemons(1, 1, 3, 3, 3)}},
			Objects{DaemonSets: []appsv1.DaemonSet{daemons(1, 1, 3, 3, 2)}}, 10,
			"09:30:10 DaemonSet kube-system/net is not whole: 3 of 3 pods are updated, 2 ready\n"},
		"DaemonSets come and go, but not Theseus' own": {
			Objects{DaemonSets: []appsv1.DaemonSet{daemons(1, 1, 3, 3, 3)}},
			Objects{DaemonSets: []appsv1.DaemonSet{
				{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "theseus-agent"}}}}, 10,
			"09:30:10 DaemonSet kube-system/net was deleted\n"},
		"pods": {Objects{Pods: []corev1.Pod{pod("shop", "a", -50, 1, nil), pod("shop", "b", -50, 0, nil),
			pod("shop", "c", -50, 0, nil)}},
			Objects{Pods: []corev1.Pod{pod("shop", "a", -50, 3, nil), pod("shop", "d", 3, 0, nil),
				pod(v1alpha1.Namespace, "own", 3, 9, nil), pod("shop", "c", -50, 0, func(p *corev1.Pod) {
					p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
				})}}, 10,
			"09:30:10 1 pod was made: 1 of Deployment shop/web\n" +
				"09:30:10 2 containers were restarted: 2 of Deployment shop/web\n" +
				"09:30:10 1 pod was evicted by the kubelet: 1 of Deployment shop/web\n"},
	} {
		before := StateOf(test.before, at(0), nil)
		if got := lines(Diff(before, StateOf(test.after, at(test.apart), &before))); got != test.want {
			t.Errorf("%s:\n%swant:\n%s", name, got, test.want)
		}
	}
}

// TestPodsNow: a look that does not read the pods leaves their count to the next one that does.
func TestPodsNow(t *testing.T) {
	first := StateOf(Objects{Pods: []corev1.Pod{pod("shop", "a", -50, 0, nil)}}, at(0), nil)
	second := StateOf(Objects{NoPods: true}, at(10), &first)
	third := StateOf(Objects{Pods: []corev1.Pod{pod("shop", "b", 5, 0, nil)}}, at(20), &second)
	if got := lines(Diff(first, second)) +
		lines(Diff(second, third)); got != "09:30:20 1 pod was made: 1 of Deployment shop/web\n" {
		t.Error(got)
	}
}

// TestFromKubernetes: Events that may explain a loss are told, those of pods in numbers; an Event that is read again
// counts once.
func TestFromKubernetes(t *testing.T) {
	event := func(reason, kind, name string, first, last, count int) corev1.Event {
		return corev1.Event{Reason: reason, InvolvedObject: corev1.ObjectReference{Kind: kind,
			Namespace: map[bool]string{true: "", false: "shop"}[kind == "Node"], Name: name},
			FirstTimestamp: metav1.NewTime(at(first)), LastTimestamp: metav1.NewTime(at(last)), Count: int32(count)}
	}
	first := []corev1.Event{event("FailedCreatePodSandBox", "Pod", "a", 5, 20, 3),
		event("FailedCreatePodSandBox", "Pod", "b", 8, 8, 1), event("Pulled", "Pod", "a", 5, 5, 1),
		event("NodeNotReady", "Node", "n", 2, 2, 1), event("NodeNotReady", "Node", "n", -900, -900, 1),
		event("Starting", "Node", "n", 3, 3, 1),
		event("NodeNotReady", "Pod", "a", 4, 4, 1), event("NodeNotReady", "Pod", "b", 4, 4, 1),
		{Reason: "LeaderElection", InvolvedObject: corev1.ObjectReference{Kind: "Lease", Namespace: "kube-system",
			Name: "scheduler"}, EventTime: metav1.NewMicroTime(at(30)),
			Series: &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(at(40))}}}
	events := FromKubernetes(first, at(0))
	want := "09:30:02 node n is not Ready\n09:30:04 pods in shop are on a node that is not Ready (2 times)\n" +
		"09:30:05 pods in shop could not be connected or started (FailedCreatePodSandBox) (4 times)\n" +
		"09:30:30 Lease kube-system/scheduler has another leader (2 times)\n"
	if got := lines(events); got != want {
		t.Errorf("%swant:\n%s", got, want)
	}
	first[0].Count = 5
	all, dropped := Union(events, FromKubernetes(first[:2], at(0)))
	if len(all) != 4 || all[2].Count != 6 || dropped != 0 {
		t.Errorf("read again: %s", lines(all))
	}
}

// TestUnionBounds: of too many events the latest stay, and the others are counted.
func TestUnionBounds(t *testing.T) {
	var many []Event
	for i := range Most + 7 {
		many = append(many, Event{At: at(i), Object: fmt.Sprint("node ", i), What: "left the cluster"})
	}
	slices.Reverse(many)
	all, dropped := Union(nil, many)
	if len(all) != Most || dropped != 7 || all[0].Object != "node 7" {
		t.Errorf("%d, %d dropped, first %+v", len(all), dropped, all[0])
	}
}

// TestLeave: a node has left since it was cordoned, tainted by an autoscaler, or last seen. One that is not Ready, is
// uncordoned, or comes back has not; and neither has one that went at an unknown time.
func TestLeave(t *testing.T) {
	ready, none := corev1.ConditionTrue, Objects{Nodes: []corev1.Node{node("other", corev1.ConditionTrue, 0, nil)}}
	look := func(change func(*corev1.Node)) Objects {
		return Objects{Nodes: append([]corev1.Node{node("a", ready, 0, change)}, none.Nodes...)}
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
	}
	ending := func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: at(5)} }
	type one struct {
		at int
		Objects
	}
	for name, test := range map[string]struct {
		looks         []one
		left, leaving string // since when; "" if it does not
		events        string
	}{
		"stays":   {[]one{{0, look(nil)}, {3, look(nil)}}, "", "", ""},
		"deleted": {[]one{{0, look(nil)}, {3, none}, {90, none}}, "09:30:00", "", "09:30:03 node a left the cluster\n"},
		"cordoned": {[]one{{0, look(nil)}, {3, look(cordoned)}, {6, look(cordoned)}}, "", "09:30:03",
			"09:30:03 node a was cordoned\n"},
		"cordoned, then deleted": {[]one{{0, look(nil)}, {3, look(cordoned)}, {300, look(cordoned)}, {303, none}},
			"09:30:03", "", "09:30:03 node a was cordoned\n09:35:03 node a left the cluster\n"},
		"cordoned, and deleted at an unknown time": {[]one{{0, look(cordoned)}, {7200, none}}, "09:30:00", "",
			"11:30:00 node a left the cluster (at some time since 09:30:00)\n"},
		"cordoned, and uncordoned": {[]one{{0, look(cordoned)}, {3, look(nil)}, {6, none}}, "09:30:03", "",
			"09:30:03 node a was uncordoned\n09:30:06 node a left the cluster\n"},
		"tainted": {[]one{{0, look(nil)}, {3, look(tainted)}}, "", "09:30:03",
			"09:30:03 node a is about to be removed\n"},
		"ending": {[]one{{0, look(nil)}, {3, look(ending)}, {6, none}}, "09:30:03", "",
			"09:30:03 node a is about to be removed\n09:30:06 node a left the cluster\n"},
		"not Ready": {[]one{{0, look(nil)}, {3, Objects{Nodes: []corev1.Node{
			node("a", corev1.ConditionUnknown, 2, nil)}}}}, "", "",
			"09:30:02 node a is not Ready: Kubelet stopped posting node status.\n"},
		"at an unknown time": {[]one{{0, look(nil)}, {7200, none}}, "", "",
			"11:30:00 node a left the cluster (at some time since 09:30:00)\n"},
		"comes back": {[]one{{0, look(nil)}, {3, none}, {6, look(nil)}}, "", "",
			"09:30:03 node a left the cluster\n09:30:06 node a joined\n"},
		"the nodes cannot be read": {[]one{{0, look(cordoned)}, {3, Objects{}}, {6, look(cordoned)}}, "",
			"09:30:00", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var state *State
			var events []Event
			for _, one := range test.looks {
				now := StateOf(one.Objects, at(one.at), state)
				if state != nil && len(one.Nodes) > 0 {
					events = append(events, Diff(*state, now)...)
				} else if state != nil {
					now.Nodes = state.Nodes // as Evidence.Observe does
				}
				state = &now
			}
			since := func(all map[string]time.Time) string {
				if at, is := all["a"]; is {
					return at.UTC().Format(time.TimeOnly)
				}
				return ""
			}
			events = slices.DeleteFunc(events, func(e Event) bool { return e.Object != "node a" })
			if got := lines(events); since(state.Left) != test.left || since(state.Leaving) != test.leaving ||
				got != test.events {
				t.Errorf("left %q, leaving %q, said\n%s", since(state.Left), since(state.Leaving), got)
			}
		})
	}
}
