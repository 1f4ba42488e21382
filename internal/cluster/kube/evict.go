package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Evicted is the result of an eviction, for the journal.
type Evicted struct {
	Pods []EvictedPod `json:"pods"`
}

// EvictedPod names a pod that was moved, its workload, and how long a PDB delayed it.
type EvictedPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workload  string `json:"workload"`
	// HeldMillis is how long the eviction API refused the eviction, in ms.
	HeldMillis int64 `json:"heldMillis,omitempty"`
	// WholeMillis is the time from the eviction until the workload had all its ready pods again, in ms; or until an
	// outage of the API server, during which nobody could tell.
	WholeMillis int64 `json:"wholeMillis"`
}

// beforeEviction is the state before an eviction, for the journal: a process that resumes the eviction must know how
// many pods of each workload were ready before the first one was moved.
type beforeEviction struct {
	Pods      int           `json:"pods"`
	Workloads []readyBefore `json:"workloads,omitempty"`
}

type readyBefore struct {
	step.Ref
	Ready int `json:"ready"`
}

func readBefore(seen json.RawMessage) (beforeEviction, error) {
	var before beforeEviction
	if len(seen) == 0 {
		return before, nil
	}
	if err := json.Unmarshal(seen, &before); err != nil {
		return before, fmt.Errorf("the journal's record of the pods before: %w", err)
	}
	return before, nil
}

// ready is the number of a workload's pods that were ready; 0 if unknown.
func (b beforeEviction) ready(owner workload) int {
	for _, w := range b.Workloads {
		if w.Ref == owner.ref() {
			return w.Ready
		}
	}
	return 0
}

// observeEvict reports an eviction as done if no pod is left to move and the workloads of pods moved by an earlier
// process have all their ready pods again.
func (a *Actor) observeEvict(ctx context.Context, set step.PodSet, seen json.RawMessage) (engine.Observation, error) {
	before, err := readBefore(seen)
	if err != nil {
		return engine.Observation{}, err
	}
	pods, err := a.podsOf(ctx, set)
	if err != nil {
		return engine.Observation{}, err
	}
	groups, err := a.byWorkload(ctx, pods)
	if err != nil {
		return engine.Observation{}, err
	}
	now := beforeEviction{Pods: len(pods)}
	for owner := range groups {
		count, err := a.count(ctx, owner)
		if err != nil {
			return engine.Observation{}, err
		}
		now.Workloads = append(now.Workloads, readyBefore{owner.ref(), count.ready})
	}
	slices.SortFunc(now.Workloads, func(x, y readyBefore) int { return cmp.Compare(x.String(), y.String()) })
	done := len(pods) == 0
	for _, w := range before.Workloads {
		count, err := a.count(ctx, workloadAt(w.Ref))
		if err != nil {
			return engine.Observation{}, err
		}
		done = done && count.whole(w.Ready)
	}
	return engine.Observation{Done: done, Before: jsonOf(now)}, nil
}

func (a *Actor) podsOf(ctx context.Context, set step.PodSet) ([]corev1.Pod, error) {
	pods, err := a.podsOn(ctx, set.Node, set.Namespace, "")
	if err != nil {
		return nil, err
	}
	pods, err = inNetworks(pods, set.CIDRs)
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return len(set.Names) > 0 && !slices.Contains(set.Names, pod.Namespace+"/"+pod.Name) ||
			set.LeaveEnding && pod.DeletionTimestamp != nil ||
			set.LeaveDaemons && ofDaemonSet(&pod)
	}), err
}

func ofDaemonSet(pod *corev1.Pod) bool {
	owner := controllerOf(pod.OwnerReferences)
	return owner != nil && owner.Kind == "DaemonSet"
}

// evict moves pods through the eviction API: pods of different workloads in parallel, pods of one workload one after
// another, each only when the workload has all its ready pods again. A pod that takes long to terminate does not delay
// others if its workload is complete without it. Replacements on the old network of this node would be evicted again;
// there are none after the node's CNI configuration was switched. The answer has the pods of earlier tries of this
// attempt, too.
func (a *Actor) evict(ctx context.Context, id string, set step.PodSet, seen json.RawMessage) (json.RawMessage, error) {
	pods, err := a.evictNow(ctx, set, seen)
	return jsonOf(Evicted{a.moved.add(id, pods)}), err
}

// evictNow is one try of evict. It returns the pods that it has moved, also if it fails.
func (a *Actor) evictNow(ctx context.Context, set step.PodSet, seen json.RawMessage) ([]EvictedPod, error) {
	before, err := readBefore(seen)
	if err != nil {
		return nil, err
	}
	pods, err := a.podsOf(ctx, set)
	if err != nil {
		return nil, err
	}
	groups, err := a.byWorkload(ctx, pods)
	if err != nil {
		return nil, err
	}
	if err := refuseBare(groups); err != nil {
		return nil, err
	}
	defer a.turns.join()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lock sync.Mutex
	var done []EvictedPod
	var failed error
	var all sync.WaitGroup
	for _, owner := range inOrder(groups) {
		members, turn := groups[owner], a.turns.queue(owner)
		all.Go(func() {
			moved, err := a.moveAll(ctx, owner, before.ready(owner), members, turn, set.LeaveEnding)
			lock.Lock()
			defer lock.Unlock()
			done = append(done, moved...)
			if err != nil && failed == nil { // later errors come from the cancelled others
				failed = err
				cancel()
			}
		})
	}
	all.Wait()
	for _, w := range before.Workloads { // also those of pods that an earlier process moved
		if failed == nil {
			failed = a.awaitWhole(ctx, workloadAt(w.Ref), w.Ready)
		}
	}
	return done, failed
}

// moved has the pods that evictions have moved, by action, since it was observed. The engine tries an action again
// after an outage of the API server, and its record has the answer of the last try alone. The zero value is ready to
// use.
type moved struct {
	lock sync.Mutex
	pods map[string][]EvictedPod
}

// begin forgets the attempt before.
func (m *moved) begin(id string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.pods, id)
}

// add adds the pods of one try, and returns those of all tries. A pod that had not terminated when an outage began is
// one pod, with the times of both tries.
func (m *moved) add(id string, pods []EvictedPod) []EvictedPod {
	m.lock.Lock()
	defer m.lock.Unlock()
	all := slices.Clone(m.pods[id])
	for _, pod := range pods {
		if i := slices.IndexFunc(all, func(earlier EvictedPod) bool {
			return earlier.Namespace == pod.Namespace && earlier.Name == pod.Name
		}); i >= 0 {
			all[i].HeldMillis, all[i].WholeMillis = all[i].HeldMillis+pod.HeldMillis, all[i].WholeMillis+pod.WholeMillis
			continue
		}
		all = append(all, pod)
	}
	slices.SortFunc(all, func(x, y EvictedPod) int {
		return cmp.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name)
	})
	if m.pods == nil {
		m.pods = map[string][]EvictedPod{}
	}
	m.pods[id] = all
	return all
}

// byWorkload groups pods by the workload that will recreate them.
func (a *Actor) byWorkload(ctx context.Context, pods []corev1.Pod) (map[workload][]corev1.Pod, error) {
	groups := map[workload][]corev1.Pod{}
	for i := range pods {
		owner, err := a.workloadOf(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		groups[owner] = append(groups[owner], pods[i])
	}
	return groups, nil
}

// refuseBare refuses pods that no controller would recreate, before any other is moved. It ignores pods that are
// already terminating.
func refuseBare(groups map[workload][]corev1.Pod) error {
	for owner, pods := range groups {
		if owner.kind == "Pod" && pods[0].DeletionTimestamp == nil {
			return fmt.Errorf("pod %s/%s: no controller would recreate it: it is not part of a workload",
				owner.namespace, owner.name)
		}
	}
	return nil
}

// moveAll moves the pods of one workload one by one, each in its turn. It waits until all have terminated, unless the
// action does not wait for that, and returns the moved pods even if it fails. After each move, as many pods must be
// ready as before the first move (least), also after a retry because of an outage or of the end of a process.
func (a *Actor) moveAll(ctx context.Context, owner workload, least int, pods []corev1.Pod, turn *turn,
	leaveEnding bool) ([]EvictedPod, error) {
	slices.SortFunc(pods, func(x, y corev1.Pod) int { return cmp.Compare(x.Name, y.Name) })
	var moved []EvictedPod
	for i := range pods {
		if i > 0 {
			turn = a.turns.queue(owner)
		}
		if err := turn.wait(ctx); err != nil {
			return moved, fmt.Errorf("pod %s/%s: %w", pods[i].Namespace, pods[i].Name, err)
		}
		if i == 0 {
			var err error
			if least, err = a.wholeAt(ctx, owner, least); err != nil {
				turn.give()
				return nil, err
			}
		}
		one, err := a.move(ctx, owner, least, &pods[i])
		turn.give()
		if one != nil {
			moved = append(moved, *one)
		}
		if err != nil {
			return moved, fmt.Errorf("pod %s/%s: %w", pods[i].Namespace, pods[i].Name, err)
		}
	}
	if leaveEnding {
		return moved, nil
	}
	for i := range pods {
		if err := a.awaitGone(ctx, &pods[i]); err != nil {
			return moved, fmt.Errorf("pod %s/%s: %w", pods[i].Namespace, pods[i].Name, err)
		}
	}
	return moved, nil
}

// wholeAt returns how many pods of a workload must be ready after each move: the number that is ready now, or was
// before the first move. It waits for them, because an earlier try may have been interrupted.
func (a *Actor) wholeAt(ctx context.Context, owner workload, least int) (int, error) {
	now, err := a.count(ctx, owner)
	if err != nil {
		return 0, err
	}
	least = max(least, now.ready)
	return least, a.awaitWhole(ctx, owner, least)
}

// move evicts a pod and waits until its workload has all its ready pods without it; if that is unknown for the
// workload, until the pod is gone.
func (a *Actor) move(ctx context.Context, owner workload, before int, pod *corev1.Pod) (*EvictedPod, error) {
	refused, err := a.askToGo(ctx, pod)
	if err != nil {
		return nil, err
	}
	evicted := a.Clock.Now()
	moved := &EvictedPod{Namespace: pod.Namespace, Name: pod.Name, Workload: owner.String()}
	if !refused.IsZero() {
		moved.HeldMillis = evicted.Sub(refused).Milliseconds()
	}
	now, err := a.count(ctx, owner)
	switch {
	case err != nil:
	case now.known:
		err = a.awaitWhole(ctx, owner, before)
	default:
		err = a.awaitGone(ctx, pod)
	}
	moved.WholeMillis = a.Clock.Now().Sub(evicted).Milliseconds()
	return moved, err
}

// longestRefused is the longest time between two requests of an eviction that a PDB denies: many at once would use up
// what the run may write.
const longestRefused = 2 * time.Second

// askToGo requests the eviction until the PDB allows it. It returns when it was refused first, if it was.
func (a *Actor) askToGo(ctx context.Context, pod *corev1.Pod) (refused time.Time, err error) {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	for rest := poll; ; rest = min(2*rest, longestRefused) {
		err := a.Typed.CoreV1().Pods(pod.Namespace).EvictV1(ctx, eviction)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return refused, nil // gone, or another pod of the same name is there already
		}
		if !apierrors.IsTooManyRequests(err) {
			return refused, err
		}
		if refused.IsZero() {
			refused = a.Clock.Now()
			if a.Note != nil {
				a.Note(fmt.Sprintf("waiting: a PodDisruptionBudget denies the eviction of pod %s/%s%s", pod.Namespace,
					pod.Name, budgetIn(err)))
			}
		}
		if a.Denied != nil {
			a.Denied(pod, strings.TrimPrefix(budgetIn(err), ": "))
		}
		if wait := a.pause(ctx, rest); wait != nil {
			return refused, fmt.Errorf("its PodDisruptionBudget denies the eviction%s: %w", budgetIn(err), err)
		}
	}
}

// budgetIn returns the API server's message about the PDB that blocks an eviction, after a colon: its name and what it
// lacks; empty if there is none.
func budgetIn(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return ": " + printable(cause.Message)
	}
	return ""
}

func (a *Actor) awaitGone(ctx context.Context, pod *corev1.Pod) error {
	var bearing patience
	for {
		now, err := a.Typed.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
			a.relieved(&bearing)
			return nil
		}
		if err != nil {
			return err
		}
		err = a.bear(ctx, &bearing, func(ctx context.Context) (trouble, error) {
			return lasting(a.down(ctx, pod.Spec.NodeName))
		})
		if err != nil {
			return fmt.Errorf("it does not terminate: %w", err)
		}
		if err := a.pause(ctx, poll); err != nil {
			return fmt.Errorf("it does not terminate: %w", err)
		}
	}
}

// workload is the controller that will recreate a pod.
type workload struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

func (w workload) String() string { return w.kind + "/" + w.namespace + "/" + w.name }

func workloadAt(ref step.Ref) workload {
	return workload{apiVersion: ref.APIVersion, kind: ref.Kind, namespace: ref.Namespace, name: ref.Name}
}

func (w workload) ref() step.Ref {
	return step.Ref{APIVersion: w.apiVersion, Kind: w.kind, Namespace: w.namespace, Name: w.name}
}

// workloadOf returns a pod's controller, or that of its ReplicaSet. It ignores owners above, such as an operator's own
// kind, because they do not tell when the pods are complete; plans name workloads in the same way (cluster.Owners).
func (a *Actor) workloadOf(ctx context.Context, pod *corev1.Pod) (workload, error) {
	owner := controllerOf(pod.OwnerReferences)
	if owner == nil {
		return workload{"v1", "Pod", pod.Namespace, pod.Name, pod.UID}, nil
	}
	found := workload{owner.APIVersion, owner.Kind, pod.Namespace, owner.Name, owner.UID}
	if found.kind != "ReplicaSet" {
		return found, nil
	}
	set, err := a.get(ctx, found.ref())
	if err != nil || set == nil {
		return found, err
	}
	if above := controllerOf(set.GetOwnerReferences()); above != nil {
		found = workload{above.APIVersion, above.Kind, pod.Namespace, above.Name, above.UID}
	}
	return found, nil
}

func controllerOf(refs []metav1.OwnerReference) *metav1.OwnerReference {
	for i := range refs {
		if refs[i].Controller != nil && *refs[i].Controller {
			return &refs[i]
		}
	}
	return nil
}

// tally counts the ready pods of a workload.
type tally struct {
	// known is false for workloads without a desired number of ready pods, such as Jobs.
	known bool
	// ready counts the pods that are Ready and not terminating.
	ready int
	// wanted is the desired number of pods now; -1 if unknown.
	wanted int
}

// whole reports whether as many pods are ready as before, or as are wanted now, since the workload may have been scaled
// down.
func (t tally) whole(before int) bool {
	return !t.known || t.ready >= before || t.wanted >= 0 && t.ready >= t.wanted
}

// count counts a workload's pods instead of using its status, which lags behind.
func (a *Actor) count(ctx context.Context, owner workload) (tally, error) {
	if owner.kind == "Pod" || owner.kind == "Job" {
		return tally{}, nil
	}
	selector, wanted, err := a.sized(ctx, owner.ref())
	if err != nil || selector == nil {
		return tally{}, err
	}
	pods, err := a.podsOn(ctx, "", owner.namespace, selector.String())
	if err != nil {
		return tally{}, err
	}
	now := tally{known: true, wanted: wanted}
	for i := range pods {
		if pods[i].DeletionTimestamp == nil && cluster.PodReady(&pods[i]) {
			now.ready++
		}
	}
	return now, nil
}

// sized returns the selector of a workload's pods and their desired number, -1 if unknown; a nil selector if the
// workload does not tell or is gone. A plan's roles do not name the kinds of other projects (CloneSet, Rollout, ...):
// of those the scale is read, as the disruption controller of Kubernetes does.
func (a *Actor) sized(ctx context.Context, ref step.Ref) (labels.Selector, int, error) {
	object, err := a.get(ctx, ref)
	if apierrors.IsForbidden(err) {
		return a.scaleOf(ctx, ref)
	}
	if err != nil || object == nil {
		return nil, -1, err
	}
	selector, err := selectorOf(object)
	return selector, wantedPods(object), err
}

// scaleOf is sized by the scale subresource, which not every kind has, and which roles of earlier versions lack.
func (a *Actor) scaleOf(ctx context.Context, ref step.Ref) (labels.Selector, int, error) {
	client, err := a.resource(ref.APIVersion, ref.Kind, ref.Namespace)
	if err != nil {
		return nil, -1, err
	}
	scale, err := client.Get(ctx, ref.Name, metav1.GetOptions{}, "scale")
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, -1, nil
	}
	if err != nil {
		return nil, -1, err
	}
	text, _, _ := unstructured.NestedString(scale.Object, "status", "selector")
	if text == "" { // would select every pod
		return nil, -1, nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, -1, fmt.Errorf("selector in the scale of %s: %w", ref, err)
	}
	return selector, wantedPods(scale), nil
}

// selectorOf returns the selector of Deployments and of kinds with the same fields; nil for other kinds.
func selectorOf(object *unstructured.Unstructured) (labels.Selector, error) {
	fields, _, _ := unstructured.NestedMap(object.Object, "spec", "selector")
	if fields["matchLabels"] == nil && fields["matchExpressions"] == nil {
		return nil, nil
	}
	var wanted metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &wanted); err != nil {
		return nil, fmt.Errorf("selector of %s: %w", step.RefOf(object), err)
	}
	return metav1.LabelSelectorAsSelector(&wanted)
}

func wantedPods(object *unstructured.Unstructured) int {
	for _, field := range [][]string{{"spec", "replicas"}, {"status", "desiredNumberScheduled"}} {
		if n, found, err := unstructured.NestedInt64(object.Object, field...); found && err == nil {
			return int(n)
		}
	}
	return -1
}

// ending says why a workload gets no more pods: it is being deleted, or its namespace is. A finalizer may keep it for
// long, and newer versions of Kubernetes delete the pods of a namespace before their workloads. Empty if neither is so,
// or if this user may not read that.
func (a *Actor) ending(ctx context.Context, owner workload) (string, error) {
	object, err := a.get(ctx, owner.ref())
	if err != nil && !apierrors.IsForbidden(err) {
		return "", err
	}
	if err == nil && object != nil && object.GetDeletionTimestamp() != nil && endsItself(object) {
		return "it is being deleted", nil
	}
	namespace, err := a.Typed.CoreV1().Namespaces().Get(ctx, owner.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return "", nil
	case err != nil || namespace.DeletionTimestamp == nil:
		return "", err
	}
	return "its namespace is being deleted", nil
}

// endsItself says whether an object that is being deleted makes no more pods. A Deployment, or another kind above
// ReplicaSets, that only a finalizer keeps leaves its ReplicaSet as it is, which replaces pods, unless its dependents
// are deleted before it.
func endsItself(object *unstructured.Unstructured) bool {
	return slices.Contains([]string{"DaemonSet", "ReplicaSet", "StatefulSet"}, object.GetKind()) ||
		slices.Contains(object.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// awaitWhole waits until a workload has all its ready pods again, or gets no more pods because it is being deleted.
func (a *Actor) awaitWhole(ctx context.Context, owner workload, before int) (err error) {
	bearing, leave := a.patient("whole "+owner.String(), patience{others: true})
	defer func() { leave(err) }()
	ends := ""
	for said := -1; ; {
		now, err := a.count(ctx, owner)
		if err != nil {
			return err
		}
		if now.whole(before) {
			a.relieved(bearing)
			return nil
		}
		missing := fmt.Sprintf("%s has %d of %d pods ready", owner, now.ready, before)
		if now.ready != said && a.Note != nil {
			a.Note("waiting: " + missing)
			said = now.ready
		}
		err = a.bear(ctx, bearing, func(ctx context.Context) (found trouble, err error) {
			if ends, err = a.ending(ctx, owner); err != nil || ends != "" {
				return trouble{}, err
			}
			return a.stuckWorkload(ctx, bearing, owner.ref(), false)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", missing, err)
		}
		if ends != "" {
			if a.Note != nil {
				a.Note(fmt.Sprintf("not waiting for pods of %s: %s", owner, ends))
			}
			return nil
		}
		if err := a.pause(ctx, poll); err != nil {
			return bearing.late(missing, err)
		}
	}
}

// Workload names the top-level workload of a pod, as Kind/namespace/name. A static pod is one by itself, and has the
// kind Node, as in a plan.
func (a *Actor) Workload(ctx context.Context, pod *corev1.Pod) (string, error) {
	owner, err := a.workloadOf(ctx, pod)
	if owner.kind == "Node" {
		owner.name = pod.Name
	}
	return owner.String(), err
}
