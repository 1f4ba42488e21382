package rehearsal

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
)

// Trap is a kind of trouble that pods make for a change.
type Trap string

// The traps that a run on a copy shows.
const (
	TrapBudget    Trap = "budget"    // a PodDisruptionBudget denies an eviction
	TrapDrain     Trap = "drain"     // a deleted pod goes on running
	TrapFinalizer Trap = "finalizer" // a deleted pod has ended, and stays
	TrapImage     Trap = "image"     // an image cannot be pulled
	TrapStart     Trap = "start"     // a container does not start, or ends again
	TrapProbe     Trap = "probe"     // a container runs, and is not ready
	TrapNode      Trap = "node"      // a pod finds no node
	TrapRefused   Trap = "refused"   // the API server refuses new pods: a webhook, a quota
)

// Lasts is how long a trouble lasts that is shown: pods that are moved are without a node, or not ready, for a while.
const Lasts = 45 * time.Second

// Shown is a trouble that lasted while the change ran on the copy.
type Shown struct {
	Trap Trap `json:"trap"`
	// Object is whose pods it is about, such as Deployment shop/web.
	Object string `json:"object"`
	What   string `json:"what"`
	// Checks are the IDs of the checks that had found it on the original.
	Checks []string `json:"checks,omitempty"`
}

// String is the trouble in a line.
func (s Shown) String() string {
	return fmt.Sprintf("the run showed a trap (%s): %s: %s; found before by %s", s.Trap, s.Object, s.What, s.before())
}

// before names the checks that had found it.
func (s Shown) before() string { return cmp.Or(strings.Join(s.Checks, ", "), "no check") }

// Watch collects what lasts of the troubles that are seen while changes run on the copy. The zero value has seen
// nothing.
type Watch struct {
	// Users are the namespaces of the copy. Of other pods, only those that cannot start are told.
	Users map[string]bool
	// denied are the pods whose eviction was denied, with what the API server said.
	denied map[string]string
	since  map[[2]string]time.Time
	// old are troubles that were there at the first look: no change has made them.
	old    map[[2]string]bool
	looked bool
	shown  map[[2]string]Shown
}

// Denied notes that a budget denied the eviction of a pod, in the words of the API server.
func (w *Watch) Denied(namespace, name, why string) {
	if w.denied == nil {
		w.denied = map[string]string{}
	}
	w.denied[namespace+"/"+name] = why
}

// Seen are the pods and ReplicaSets of the scratch cluster at a time.
type Seen struct {
	At          time.Time
	Pods        []corev1.Pod
	ReplicaSets []appsv1.ReplicaSet
}

// Look takes in what there is now.
func (w *Watch) Look(now Seen) {
	found := map[[2]string]Shown{}
	add := func(trap Trap, object, what string, args ...any) {
		key := [2]string{object, string(trap)}
		if _, known := found[key]; !known {
			found[key] = Shown{Trap: trap, Object: object, What: fmt.Sprintf(what, args...)}
		}
	}
	there := map[string]bool{}
	for i := range now.Pods {
		pod := &now.Pods[i]
		name := pod.Namespace + "/" + pod.Name
		if pod.DeletionTimestamp == nil {
			there[name] = true
		}
		if why, denied := w.denied[name]; denied && pod.DeletionTimestamp == nil {
			add(TrapBudget, observe.Workload(pod), "%s", strings.TrimSuffix("a PodDisruptionBudget denies the "+
				"eviction of its pods: "+why, ": "))
		}
		if w.Users[pod.Namespace] {
			ofPod(pod, add)
		}
		starts(pod, add)
	}
	maps.DeleteFunc(w.denied, func(name, _ string) bool { return !there[name] })
	for i := range now.ReplicaSets {
		set := &now.ReplicaSets[i]
		object := "ReplicaSet " + set.Namespace + "/" + set.Name
		for _, owner := range set.OwnerReferences {
			if owner.Controller != nil && *owner.Controller {
				object = owner.Kind + " " + set.Namespace + "/" + owner.Name
			}
		}
		for _, condition := range set.Status.Conditions {
			if condition.Type == appsv1.ReplicaSetReplicaFailure && condition.Status == corev1.ConditionTrue {
				add(TrapRefused, object, "the API server refuses new pods: %s", condition.Message)
			}
		}
	}
	if !w.looked {
		w.looked, w.old = true, map[[2]string]bool{}
		w.since, w.shown = map[[2]string]time.Time{}, map[[2]string]Shown{}
		for key := range found {
			w.old[key] = true
		}
	}
	gone := func(key [2]string) bool { _, still := found[key]; return !still }
	maps.DeleteFunc(w.since, func(key [2]string, _ time.Time) bool { return gone(key) })
	maps.DeleteFunc(w.old, func(key [2]string, _ bool) bool { return gone(key) })
	for key, one := range found {
		if w.old[key] {
			continue
		}
		if w.since[key].IsZero() {
			w.since[key] = now.At
		}
		if now.At.Sub(w.since[key]) >= Lasts {
			w.shown[key] = one
		}
	}
}

// ofPod finds what is wrong with a pod, whatever is the matter with its budget.
func ofPod(pod *corev1.Pod, add func(trap Trap, object, what string, args ...any)) {
	object := observe.Workload(pod)
	if pod.DeletionTimestamp != nil {
		grace := int64(0)
		if pod.Spec.TerminationGracePeriodSeconds != nil {
			grace = *pod.Spec.TerminationGracePeriodSeconds
		}
		switch {
		case !over(pod):
			add(TrapDrain, object, "deleted pods go on running; their grace period is %d s", grace)
		case len(pod.Finalizers) > 0:
			add(TrapFinalizer, object, "deleted pods have ended, and stay: the finalizer %s is not removed",
				strings.Join(pod.Finalizers, ", "))
		}
		return
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			add(TrapNode, object, "its pods find no node: %s", condition.Message)
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running == nil || status.Ready {
			continue
		}
		for _, container := range pod.Spec.Containers {
			probe := cmp.Or(container.StartupProbe, container.ReadinessProbe)
			if container.Name == status.Name && probe != nil {
				add(TrapProbe, object, "its container %s runs, and is not ready: its probe begins after %d s, and "+
					"asks every %d s", status.Name, probe.InitialDelaySeconds, probe.PeriodSeconds)
			}
		}
	}
}

// starts finds containers of a pod that cannot start.
func starts(pod *corev1.Pod, add func(trap Trap, object, what string, args ...any)) {
	if pod.DeletionTimestamp != nil {
		return
	}
	object := observe.Workload(pod)
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := status.State.Waiting
		switch {
		case waiting != nil && slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName",
			"ErrImageNeverPull", "RegistryUnavailable"}, waiting.Reason):
			add(TrapImage, object, "the image %s cannot be pulled", status.Image)
		case waiting != nil && slices.Contains([]string{"CrashLoopBackOff", "CreateContainerConfigError",
			"CreateContainerError", "RunContainerError"}, waiting.Reason):
			add(TrapStart, object, "its container %s does not start: %s: %s", status.Name, waiting.Reason,
				waiting.Message)
		}
	}
}

// checksOf are the checks that may find a trap before a run does.
func checksOf(trap Trap) []string {
	switch trap {
	case TrapBudget:
		return []string{"pdb/blocks"}
	case TrapImage:
		return []string{"agent/image", "node/image-absent"}
	case TrapProbe, TrapStart:
		return []string{"workload/unready", "workload/readiness"}
	case TrapNode:
		return []string{"labels/removed-in-use", "taints/removed-in-use", "node/capacity", "node/not-ready"}
	case TrapRefused:
		return []string{"webhook/deadlock"}
	}
	return nil
}

// Shown is what lasted, in the order of its objects. found are the findings on the original.
func (w *Watch) Shown(found []finding.Finding) []Shown {
	var all []Shown
	for _, one := range w.shown {
		_, name, _ := strings.Cut(one.Object, " ")
		namespace, _, _ := strings.Cut(name, "/")
		for _, f := range found {
			// a budget is in the namespace of its pods; nodes, images and webhooks are in none
			about := f.Subject.Namespace == namespace && (f.Subject.Kind == "PodDisruptionBudget" &&
				strings.Contains(one.What+" ", " "+f.Subject.Name+" ") ||
				one.Object == f.Subject.Kind+" "+namespace+"/"+f.Subject.Name) || f.Subject.Namespace == ""
			if about && slices.Contains(checksOf(one.Trap), f.ID) && !slices.Contains(one.Checks, f.ID) {
				one.Checks = append(one.Checks, f.ID)
			}
		}
		slices.Sort(one.Checks)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Shown) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(string(a.Trap), string(b.Trap)))
	})
	return all
}

// ShownTable is what a run showed, with the checks that had found it.
func ShownTable(all []Shown) Table {
	return tableOf("What the run showed", []string{"TRAP", "PODS OF", "WHAT", "FOUND BEFORE BY"}, all,
		func(s Shown) []string {
			return []string{string(s.Trap), s.Object, s.What, s.before()}
		})
}
