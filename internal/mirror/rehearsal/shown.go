package rehearsal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
)

// Trap is a kind of trouble that pods make for a change.
type Trap string

// The traps that a run on a copy shows.
const (
	TrapBudget    Trap = "budget"    // a PodDisruptionBudget denies an eviction
	TrapDrain     Trap = "drain"     // a deleted pod does not terminate
	TrapFinalizer Trap = "finalizer" // a deleted pod has terminated, and remains
	TrapImage     Trap = "image"     // an image cannot be pulled
	TrapStart     Trap = "start"     // a container does not start, or ends again
	TrapProbe     Trap = "probe"     // a container runs but is not ready
	TrapNode      Trap = "node"      // a pod cannot be scheduled
	TrapRefused   Trap = "refused"   // the API server refuses new pods: a webhook, a quota
	TrapPolicy    Trap = "policy"    // policies have another effect on a connection between stand-ins
	TrapTraffic   Trap = "traffic"   // a connection between stand-ins that policies allow gets no answer
)

// Lasts is how long a trouble lasts that is shown: pods that are moved are without a node, or not ready, for a while.
const Lasts = 45 * time.Second

// Shown is a trouble that lasted while the change ran on the copy.
type Shown struct {
	Trap Trap `json:"trap"`
	// Object is whose pods it is about, such as Deployment shop/web.
	Object string `json:"object"`
	What   string `json:"what"`
	// Checks are the IDs of the checks that had reported it on the original.
	Checks []string `json:"checks,omitempty"`

	// ends are the namespaces of both ends of a connection.
	ends []string
}

// String is the trouble in a line.
func (s Shown) String() string {
	by := "no check had reported it"
	if len(s.Checks) > 0 {
		by = "already reported by " + strings.Join(s.Checks, ", ")
		if s.Trap == TrapTraffic { // what they report concerns nodes: whether it is the reason is not known
			by = "may be what these checks reported: " + strings.Join(s.Checks, ", ")
		}
	}
	return fmt.Sprintf("the run showed a trap (%s): %s: %s; %s", s.Trap, s.Object, s.What, by)
}

// gap is how far two looks, or two denials, may be apart for a trouble to last between them: while the API server is
// away, nobody can tell it that a trouble is over.
const gap = 15 * time.Second

// trouble is one of the pods of a workload.
type trouble struct {
	object string
	trap   Trap
}

// single is one of one pod, by its UID, and of one of its containers; or of one ReplicaSet.
type single struct {
	trouble
	uid, part string
}

// denial is the time in which a budget denied the eviction of a pod.
type denial struct{ first, last time.Time }

// Watch collects what lasts of the troubles that are seen while changes run on the copy. The zero value has seen
// nothing.
type Watch struct {
	// Users are the namespaces of the copy. Of other pods, only those that cannot start are told.
	Users  map[string]bool
	denied map[types.UID]denial
	// since is when troubles began. Each pod has its own: pods that end or start one after another, each in its time,
	// are no trouble.
	since map[single]time.Time
	// old are troubles that were there at the first look: no change has made them, also when they come and go.
	old    map[trouble]bool
	last   time.Time
	looked bool
	shown  map[trouble]Shown
}

// Again begins anew: what is there at the next look, no change after it has made. What was shown stays.
func (w *Watch) Again() { w.looked, w.since, w.denied = false, nil, nil }

// Denied notes that a budget denied the eviction of a pod at a time, in the words of the API server.
func (w *Watch) Denied(at time.Time, pod *corev1.Pod, why string) {
	lasts := w.denied[pod.UID]
	if at.Sub(lasts.last) > gap {
		lasts.first = at
	}
	lasts.last = at
	if w.denied == nil {
		w.denied = map[types.UID]denial{}
	}
	w.denied[pod.UID] = lasts
	if at.Sub(lasts.first) >= Lasts {
		w.show(Shown{Trap: TrapBudget, Object: observe.Workload(pod), What: strings.TrimSuffix(
			"a PodDisruptionBudget denies the eviction of its pods: "+why, ": ")})
	}
}

// show keeps the first trouble of its trap and object.
func (w *Watch) show(one Shown) {
	key := trouble{one.Object, one.Trap}
	if _, known := w.shown[key]; known {
		return
	}
	if w.shown == nil {
		w.shown = map[trouble]Shown{}
	}
	w.shown[key] = one
}

// Seen are the pods and ReplicaSets of the scratch cluster at a time.
type Seen struct {
	At          time.Time
	Pods        []corev1.Pod
	ReplicaSets []appsv1.ReplicaSet
	// StatefulSets, DaemonSets and Jobs say in Events alone that their pods are refused.
	StatefulSets []appsv1.StatefulSet
	DaemonSets   []appsv1.DaemonSet
	Jobs         []batchv1.Job
	Events       []corev1.Event
}

// adder takes in a trouble, of a container if part names one.
type adder func(trap Trap, part, what string, args ...any)

// Look takes in what there is now.
func (w *Watch) Look(now Seen) {
	since := map[single]time.Time{}
	if !w.looked || now.At.Sub(w.last) > gap {
		w.since = nil
	}
	first := !w.looked
	w.looked, w.last = true, now.At
	if w.old == nil {
		w.old = map[trouble]bool{}
	}
	add := func(object string, uid types.UID) adder {
		return func(trap Trap, part, what string, args ...any) {
			key := single{trouble{object, trap}, string(uid), part}
			began, known := w.since[key]
			if !known {
				began = now.At
			}
			since[key] = began
			w.old[key.trouble] = w.old[key.trouble] || first
			if !w.old[key.trouble] && now.At.Sub(began) >= Lasts {
				w.show(Shown{Trap: trap, Object: object, What: fmt.Sprintf(what, args...)})
			}
		}
	}
	for i := range now.Pods {
		pod := &now.Pods[i]
		object := observe.Workload(pod)
		if first && endedLately(pod, now.At) {
			w.old[trouble{object, TrapStart}] = true
		}
		if w.Users[pod.Namespace] {
			ofPod(pod, now.At, add(object, pod.UID))
		}
		starts(pod, add(object, pod.UID))
	}
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
				add(object, set.UID)(TrapRefused, "", "the API server refuses new pods: %s", condition.Message)
			}
		}
	}
	for _, one := range now.refused() {
		add(one.object, one.uid)(TrapRefused, "", "the API server refuses new pods: %s", one.why)
	}
	w.since = since
}

// refusal is a workload that lacks pods, as the API server refuses them.
type refusal struct {
	object string
	uid    types.UID
	why    string
}

// refusedLately is how old an event of a refused pod may be: controllers wait longer and longer before they try again.
const refusedLately = 5 * time.Minute

// refused are the workloads that lack pods and whose controllers have lately said that the API server refuses them.
func (now *Seen) refused() (all []refusal) {
	why := map[types.UID]string{}
	for i := range now.Events {
		event := &now.Events[i]
		at := event.LastTimestamp.Time
		if event.EventTime.After(at) {
			at = event.EventTime.Time
		}
		if event.Series != nil && event.Series.LastObservedTime.After(at) {
			at = event.Series.LastObservedTime.Time
		}
		if event.Reason == "FailedCreate" && now.At.Sub(at) < refusedLately &&
			slices.ContainsFunc([]string{"forbidden", "denied the request", "failed calling webhook"},
				func(word string) bool { return strings.Contains(event.Message, word) }) {
			why[event.InvolvedObject.UID] = event.Message
		}
	}
	add := func(kind string, object *metav1.ObjectMeta, lacks bool) {
		if said := why[object.UID]; lacks && said != "" && object.UID != "" {
			all = append(all, refusal{kind + " " + object.Namespace + "/" + object.Name, object.UID, said})
		}
	}
	wants := func(n *int32) int32 {
		if n == nil {
			return 1
		}
		return *n
	}
	for i := range now.StatefulSets {
		one := &now.StatefulSets[i]
		add("StatefulSet", &one.ObjectMeta, one.Status.Replicas < wants(one.Spec.Replicas))
	}
	for i := range now.DaemonSets {
		one := &now.DaemonSets[i]
		add("DaemonSet", &one.ObjectMeta, one.Status.CurrentNumberScheduled < one.Status.DesiredNumberScheduled)
	}
	for i := range now.Jobs {
		one := &now.Jobs[i]
		add("Job", &one.ObjectMeta, lacksPods(one))
	}
	return all
}

// lacksPods reports whether a Job has fewer pods than it should have now: one that has ended, or nearly so, needs
// fewer.
func lacksPods(one *batchv1.Job) bool {
	if slices.ContainsFunc(one.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && slices.Contains([]batchv1.JobConditionType{batchv1.JobComplete,
			batchv1.JobFailed, batchv1.JobSuspended, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget}, c.Type)
	}) {
		return false
	}
	want := int32(1)
	if one.Spec.Parallelism != nil {
		want = *one.Spec.Parallelism
	}
	switch {
	case one.Spec.Completions != nil:
		want = min(want, *one.Spec.Completions-one.Status.Succeeded)
	case one.Status.Succeeded > 0: // the others end, and no new ones begin
		want = 0
	}
	return one.Status.Active < want
}

// endedLately reports whether a container of a pod has ended so lately that the kubelet still counts it as crashing,
// also while it runs: after 10 minutes, the back-off begins anew.
func endedLately(pod *corev1.Pod, now time.Time) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		ended := c.LastTerminationState.Terminated
		return ended != nil && now.Sub(ended.FinishedAt.Time) < 10*time.Minute
	})
}

// ofPod finds what is wrong with a pod, whatever is the matter with its budget.
func ofPod(pod *corev1.Pod, now time.Time, add adder) {
	if pod.DeletionTimestamp != nil {
		grace := int64(0)
		if pod.Spec.TerminationGracePeriodSeconds != nil {
			grace = *pod.Spec.TerminationGracePeriodSeconds
		}
		switch {
		case !over(pod) && sleeping(pod, now): // as it is meant to
		case !over(pod):
			add(TrapDrain, "", "its deleted pods do not terminate; their grace period is %d s", grace)
		case len(pod.Finalizers) > 0:
			add(TrapFinalizer, "", "its deleted pods have terminated but remain: nothing removes the finalizer %s",
				strings.Join(pod.Finalizers, ", "))
		}
		return
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			add(TrapNode, "", "its pods cannot be scheduled: %s", condition.Message)
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running == nil || status.Ready {
			continue
		}
		for _, container := range pod.Spec.Containers {
			probe := cmp.Or(container.StartupProbe, container.ReadinessProbe)
			if container.Name == status.Name && probe != nil {
				add(TrapProbe, status.Name, "its container %s runs but is not ready: the probe starts after %d s and "+
					"repeats every %d s", status.Name, probe.InitialDelaySeconds, probe.PeriodSeconds)
			}
		}
	}
}

// longestSleep bounds the sleep of a hook that is no trouble: a change waits so long for the pods of a node at least.
const longestSleep = 10 * time.Minute

// sleeping reports whether a pod that ends sleeps before it is told to stop, and will wake in its grace period.
func sleeping(pod *corev1.Pod, now time.Time) bool {
	if pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	var sleep time.Duration
	for i := range pod.Spec.Containers {
		if hooks := pod.Spec.Containers[i].Lifecycle; hooks != nil && hooks.PreStop != nil &&
			hooks.PreStop.Sleep != nil {
			sleep = max(sleep, time.Duration(hooks.PreStop.Sleep.Seconds)*time.Second)
		}
	}
	asked := pod.DeletionTimestamp.Add(-grace)
	return sleep < grace && sleep <= longestSleep && now.Before(asked.Add(sleep))
}

// starts finds containers of a pod that cannot start.
func starts(pod *corev1.Pod, add adder) {
	if pod.DeletionTimestamp != nil {
		return
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := status.State.Waiting
		switch {
		case waiting != nil && slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName",
			"ErrImageNeverPull", "RegistryUnavailable"}, waiting.Reason):
			add(TrapImage, status.Name, "the image %s cannot be pulled", status.Image)
		case waiting != nil && slices.Contains([]string{"CrashLoopBackOff", "CreateContainerConfigError",
			"CreateContainerError", "RunContainerError"}, waiting.Reason):
			add(TrapStart, status.Name, "its container %s does not start: %s: %s", status.Name, waiting.Reason,
				waiting.Message)
		}
	}
}

// checksOf are the checks that may report a trap before a run shows it.
func checksOf(trap Trap) []string {
	switch trap {
	case TrapBudget:
		return []string{"pdb/blocks"}
	case TrapImage:
		return []string{"agent/image", "node/image-absent"}
	case TrapProbe, TrapStart:
		return []string{"workload/unready"}
	case TrapNode:
		return []string{"labels/removed-in-use", "taints/removed-in-use"}
	case TrapRefused:
		return []string{"webhook/deadlock"}
	case TrapPolicy:
		return []string{"policy/verdict-changes"}
	case TrapTraffic:
		return []string{"bgp/cluster-id", "bgp/partition", "bgp/peer-selector-empty", "bgp/single-reflector",
			"mtu/path", "mtu/too-big"}
	}
	return nil
}

// about reports whether a finding is about what a run showed: about the same workload, or about the budget, the image
// or the webhook that is named in it.
func (s Shown) about(f *finding.Finding) bool {
	_, name, _ := strings.Cut(s.Object, " ")
	namespace, _, _ := strings.Cut(name, "/")
	image := strings.TrimSuffix(strings.TrimPrefix(s.What, "the image "), " cannot be pulled")
	if s.Trap == TrapPolicy || s.Trap == TrapTraffic { // a policy of the cluster, a node or a peering has no namespace
		return f.Subject.Namespace == "" || slices.Contains(s.ends, f.Subject.Namespace)
	}
	switch f.Subject.Kind {
	case "PodDisruptionBudget":
		return f.Subject.Namespace == namespace && strings.Contains(s.What, "disruption budget "+f.Subject.Name+" ")
	case "Image":
		return f.Subject.Name == image
	case "Change":
		return slices.ContainsFunc(strings.Fields(f.Message),
			func(word string) bool { return strings.Trim(word, "\",;:") == image })
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		hook, _ := f.Evidence["webhook"].(string) // the API server names this, not its configuration
		return hook != "" && strings.Contains(s.What, fmt.Sprintf("failed calling webhook %q", hook))
	}
	return f.Subject.Namespace != "" && s.Object == f.Subject.Kind+" "+f.Subject.Namespace+"/"+f.Subject.Name
}

// Shown is what lasted, in the order of its objects. found are the findings on the original. What a check only mentions
// (info) it has not reported.
func (w *Watch) Shown(found []finding.Finding) []Shown {
	var all []Shown
	for _, one := range w.shown {
		for i := range found {
			f := &found[i]
			if f.Severity != finding.Info && slices.Contains(checksOf(one.Trap), f.ID) && one.about(f) &&
				!slices.Contains(one.Checks, f.ID) {
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

// ShownTable is what a run showed, with the checks that had reported it.
func ShownTable(all []Shown) Table {
	return tableOf("What the run showed", []string{"TRAP", "PODS OF", "WHAT", "REPORTED BY CHECK"}, all,
		func(s Shown) []string {
			by := cmp.Or(strings.Join(s.Checks, ", "), "no check")
			if s.Trap == TrapTraffic && len(s.Checks) > 0 {
				by = "perhaps " + by
			}
			return []string{string(s.Trap), s.Object, s.What, by}
		})
}
