package observe

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Objects are what a look has read.
type Objects struct {
	Nodes      []corev1.Node
	DaemonSets []appsv1.DaemonSet
	// Pods are not read by every look; then NoPods is true.
	Pods   []corev1.Pod
	NoPods bool
}

// State is the part of a cluster that is compared, at one moment. It is small, so that it can be kept for a look on
// another machine.
type State struct {
	At time.Time `json:"at"`
	// Nodes are by name, DaemonSets by namespace/name, and Pods by their workload. Theseus' own are left out. Nodes and
	// DaemonSets are nil if no look has read them.
	Nodes      map[string]Node      `json:"nodes"`
	DaemonSets map[string]DaemonSet `json:"daemonSets"`
	Pods       map[string]Pods      `json:"pods,omitempty"`
	// PodsAt is when Pods were read.
	PodsAt time.Time `json:"podsAt,omitzero"`
	// Leaving are the nodes that are about to be removed, since when, and Left those whose Node object was deleted,
	// since they began to leave. A node that was deleted without a sign before, and not just before the look that
	// missed it, is in neither: it is not known when it left.
	Leaving map[string]time.Time `json:"leaving,omitempty"`
	Left    map[string]time.Time `json:"left,omitempty"`
}

// Node is a node at a moment.
type Node struct {
	// Ready is the status of the condition Ready, which it has since Since, and Why its message.
	Ready corev1.ConditionStatus `json:"ready,omitempty"`
	Since time.Time              `json:"since,omitzero"`
	Why   string                 `json:"why,omitempty"`
	// Kubelet is its version, and Boot the ID of the boot.
	Kubelet  string `json:"kubelet,omitempty"`
	Boot     string `json:"boot,omitempty"`
	Cordoned bool   `json:"cordoned,omitempty"`
}

// DaemonSet is a DaemonSet at a moment.
type DaemonSet struct {
	Generation int64 `json:"generation"`
	// Stale is true if its controller has not seen this generation yet.
	Stale                   bool  `json:"stale,omitempty"`
	Desired, Updated, Ready int32 `json:",omitempty"`
}

// whole says whether all its pods are updated and ready.
func (d DaemonSet) whole() bool { return !d.Stale && d.Updated >= d.Desired && d.Ready >= d.Desired }

// Pods are the pods of a workload at a moment.
type Pods struct {
	Pods     int `json:"pods"`
	Restarts int `json:"restarts,omitempty"` // of their containers
	Evicted  int `json:"evicted,omitempty"`  // by a kubelet; they stay as failed pods
	// New were made since the look before.
	New int `json:"new,omitempty"`
}

// StateOf is the state at a moment. before is the look before; nil if this is the first.
func StateOf(o Objects, at time.Time, before *State) State {
	s := State{At: at, Nodes: map[string]Node{}, DaemonSets: map[string]DaemonSet{}}
	for i := range o.Nodes {
		s.Nodes[o.Nodes[i].Name] = nodeOf(&o.Nodes[i])
	}
	for i := range o.DaemonSets {
		d := &o.DaemonSets[i]
		if d.Namespace == v1alpha1.Namespace {
			continue
		}
		s.DaemonSets[d.Namespace+"/"+d.Name] = DaemonSet{Generation: d.Generation,
			Stale: d.Status.ObservedGeneration < d.Generation, Desired: d.Status.DesiredNumberScheduled,
			Updated: d.Status.UpdatedNumberScheduled, Ready: d.Status.NumberReady}
	}
	s.leave(o.Nodes, before)
	if o.NoPods {
		if before != nil {
			s.Pods, s.PodsAt = before.Pods, before.PodsAt
		}
		return s
	}
	s.Pods, s.PodsAt = map[string]Pods{}, at
	var since time.Time
	if before != nil {
		since = before.PodsAt
	}
	for i := range o.Pods {
		if pod := &o.Pods[i]; pod.Namespace != v1alpha1.Namespace {
			s.Pods[Workload(pod)] = s.Pods[Workload(pod)].with(pod, since)
		}
	}
	return s
}

// leave tells which nodes are about to be removed, and which have left since the look before. Without nodes, this look
// has not read them.
func (s *State) leave(nodes []corev1.Node, before *State) {
	if before == nil {
		before = &State{}
	}
	if len(nodes) == 0 {
		s.Leaving, s.Left = before.Leaving, before.Left
		return
	}
	s.Leaving, s.Left = map[string]time.Time{}, map[string]time.Time{}
	for i := range nodes {
		if since, known := before.Leaving[nodes[i].Name]; known && Leaves(&nodes[i]) {
			s.Leaving[nodes[i].Name] = since
		} else if Leaves(&nodes[i]) {
			s.Leaving[nodes[i].Name] = s.At
		}
	}
	for name := range before.Nodes {
		since, told := before.Leaving[name]
		if _, is := s.Nodes[name]; is || !told && s.At.Sub(before.At) > closeBy {
			continue
		}
		if !told {
			since = before.At
		}
		s.Left[name] = since
	}
	for name, since := range before.Left {
		if _, is := s.Nodes[name]; !is {
			s.Left[name] = since
		}
	}
}

// removes are the taints of autoscalers on nodes that they are about to remove.
var removes = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"}

// Leaves reports whether a node is about to be removed, as far as that shows: it is cordoned, an autoscaler has tainted
// it, or its deletion waits for a finalizer.
func Leaves(node *corev1.Node) bool {
	return node.Spec.Unschedulable || node.DeletionTimestamp != nil ||
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(removes, t.Key) })
}

func nodeOf(node *corev1.Node) Node {
	n := Node{Kubelet: node.Status.NodeInfo.KubeletVersion, Boot: node.Status.NodeInfo.BootID,
		Cordoned: node.Spec.Unschedulable}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			n.Ready, n.Since, n.Why = condition.Status, condition.LastTransitionTime.Time, condition.Message
		}
	}
	return n
}

func (p Pods) with(pod *corev1.Pod, since time.Time) Pods {
	p.Pods++
	for _, status := range pod.Status.ContainerStatuses {
		p.Restarts += int(status.RestartCount)
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted" {
		p.Evicted++
	}
	if !since.IsZero() && pod.CreationTimestamp.After(since) {
		p.New++
	}
	return p
}

// Workload names what a pod belongs to, as "KIND NAMESPACE/NAME": its controller, and in place of a Deployment's
// ReplicaSet the Deployment.
func Workload(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return "Pod " + pod.Namespace + "/" + pod.Name
	}
	if name, ok := strings.CutSuffix(owner.Name, "-"+pod.Labels["pod-template-hash"]); ok &&
		owner.Kind == "ReplicaSet" {
		return "Deployment " + pod.Namespace + "/" + name
	}
	return owner.Kind + " " + pod.Namespace + "/" + owner.Name
}
