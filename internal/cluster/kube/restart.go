package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// podsBefore are the pods of a DaemonSet on a node, by UID, when a restart was first observed.
type podsBefore struct {
	Pods []types.UID `json:"pods"`
}

// observeRestart reports a restart as done if the node has a Ready pod of the DaemonSet's current template. If the pod
// must be recreated, it must not be one that existed at the first observation. On a node that was removed it is done,
// too, although pod garbage collection has not deleted the pod yet.
func (a *Actor) observeRestart(ctx context.Context, do step.Restart,
	known json.RawMessage) (engine.Observation, error) {
	before, first, err := readPods(do, known)
	if err != nil {
		return engine.Observation{}, err
	}
	now, err := a.outdated(ctx, do, before, a.Clock.Now())
	if err != nil {
		return engine.Observation{}, err
	}
	seen := engine.Observation{Done: now.missing == "" && !first}
	if do.Always {
		seen.Before = jsonOf(podsBefore{now.all})
	}
	if !seen.Done {
		if node, err := a.node(ctx, do.NodeName); err != nil || node == nil {
			return nodeGone(), err
		}
	}
	return seen, nil
}

// readPods returns the pods that a restart must replace regardless of their template; first is true at the first
// observation.
func readPods(do step.Restart, seen json.RawMessage) (before []types.UID, first bool, err error) {
	if !do.Always || len(seen) == 0 {
		return nil, do.Always, nil
	}
	var known podsBefore
	if err := json.Unmarshal(seen, &known); err != nil {
		return nil, false, fmt.Errorf("the journal's record of the pods before: %w", err)
	}
	return known.Pods, false, nil
}

// restart deletes the pods of earlier templates, and, if the pod must be recreated, all pods that existed before. Then
// it waits for the replacement, unless the node is removed meanwhile.
func (a *Actor) restart(ctx context.Context, do step.Restart, seen json.RawMessage) (err error) {
	before, first, err := readPods(do, seen)
	if err != nil {
		return err
	}
	if first {
		return fmt.Errorf("the journal does not record which pod of %s was on %s before", do.Ref, do.NodeName)
	}
	said, begun := "", a.Clock.Now()
	var nudged *corev1.Pod
	bearing, leave := a.patient(string(jsonOf(do)), patience{})
	defer func() { leave(err) }()
	for waited := 0; ; waited++ {
		since := a.Clock.Now().Add(-poll)
		if since.Before(begun) {
			since = begun
		}
		now, err := a.outdated(ctx, do, before, since)
		if err != nil {
			return err
		}
		if now.missing == "" {
			a.relieved(bearing)
			if nudged == nil {
				return nil
			}
			return a.nudge(ctx, nudged, nil)
		}
		for _, pod := range now.pods {
			if do.Mark != "" {
				if err := a.annotate(ctx, &pod, do.Mark, "true"); err != nil {
					return err
				}
			}
			err := a.Typed.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
				metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
		if now.starting != nil && now.starting.Status.Phase == corev1.PodRunning && waited%nudgeEvery == 0 {
			nudged = now.starting
			if err := a.nudge(ctx, nudged, a.Clock.Now().UTC()); err != nil {
				return err
			}
		}
		if now.missing != said && a.Note != nil {
			a.Note("waiting: " + now.missing)
			said = now.missing
		}
		gone := false
		err = a.bear(ctx, bearing, func(ctx context.Context) (trouble, error) {
			node, err := a.node(ctx, do.NodeName)
			if gone = err == nil && node == nil; gone || err != nil {
				return trouble{}, err
			}
			if now.starting != nil {
				if found := a.ailing(ctx, bearing, []corev1.Pod{*now.starting}); found.why != "" {
					return found, nil
				}
			}
			return lasting(notReady(node), nil)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", now.missing, err)
		}
		if gone { // nothing is left to restart
			return nil
		}
		if err := a.pause(ctx, poll); err != nil {
			return bearing.late(now.missing, err)
		}
	}
}

// nudgeEvery is the number of polls between two nudges.
const nudgeEvery = 5

// nudge makes the kubelet run a pod's readiness probe now instead of at the end of its period, by changing an
// annotation: the kubelet probes a pod that is not ready whenever the pod changes (UpdatePodStatus in
// pkg/kubelet/prober). Readiness is still the kubelet's decision. A nil value removes the annotation.
func (a *Actor) nudge(ctx context.Context, pod *corev1.Pod, mark any) error {
	err := a.annotate(ctx, pod, v1alpha1.AnnotationAwaited, mark)
	if apierrors.IsForbidden(err) { // optional: the kubelet probes later by itself
		return nil
	}
	return err
}

// annotate sets a pod's annotation, or removes it if value is nil. A pod that no longer exists is not an error.
func (a *Actor) annotate(ctx context.Context, pod *corev1.Pod, key string, value any) error {
	patch := jsonOf(map[string]any{"metadata": map[string]any{"uid": pod.UID,
		"annotations": map[string]any{key: value}}})
	_, err := a.Typed.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: FieldManager})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// rollout is the state of a DaemonSet's rollout on a node.
type rollout struct {
	// all are all pods; pods are those of another revision, or to be recreated, that are not terminating yet.
	all  []types.UID
	pods []corev1.Pod
	// starting is the pod of the newest revision, while it is not Ready.
	starting *corev1.Pod
	// missing says what is missing; empty if the node runs the newest revision.
	missing string
}

// outdated looks at a node's rollout. The DaemonSet and its newest revision may have been read by another restart, but
// not before since.
func (a *Actor) outdated(ctx context.Context, do step.Restart, before []types.UID, since time.Time) (rollout, error) {
	set, revision, err := a.sets.read(ctx, a, do.Ref, since)
	if err != nil {
		return rollout{}, err
	}
	pods, err := a.podsOn(ctx, do.NodeName, set.Namespace, metav1.FormatLabelSelector(set.Spec.Selector))
	if err != nil {
		return rollout{}, err
	}
	now := rollout{missing: "no pod of " + do.Ref.String() + " on " + do.NodeName}
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, set) })
	for _, pod := range pods {
		now.all = append(now.all, pod.UID)
	}
	if revision == "" {
		return rollout{all: now.all, missing: "the controller of " + do.Ref.String() +
			" has not observed it yet"}, nil
	}
	for _, pod := range pods {
		switch {
		case pod.DeletionTimestamp != nil:
			return rollout{all: now.all, pods: now.pods, missing: "pod " + pod.Name + " is terminating"}, nil
		case pod.Labels[appsv1.ControllerRevisionHashLabelKey] != revision:
			now.pods = append(now.pods, pod)
			now.missing = "pod " + pod.Name + " is of an earlier template"
		case slices.Contains(before, pod.UID):
			now.pods = append(now.pods, pod)
			now.missing = "pod " + pod.Name + " is from before"
		case !cluster.PodReady(&pod):
			now.missing, now.starting = "pod "+pod.Name+" is not Ready", &pod
		case len(now.pods) == 0:
			now.missing = ""
		}
	}
	return now, nil
}

// sets are DaemonSets with their newest revisions. Restarts of many nodes look at the same one many times a second.
// The zero value is ready to use.
type sets struct {
	lock  sync.Mutex
	known map[step.Ref]*sharedSet
}

// sharedSet is what was read last, from at on.
type sharedSet struct {
	lock     sync.Mutex
	at       time.Time
	set      *appsv1.DaemonSet
	revision string
}

// read returns a DaemonSet and the hash of its newest revision, as they were at since or later.
func (s *sets) read(ctx context.Context, a *Actor, ref step.Ref, since time.Time) (*appsv1.DaemonSet, string, error) {
	s.lock.Lock()
	if s.known == nil {
		s.known = map[step.Ref]*sharedSet{}
	}
	one := s.known[ref]
	if one == nil {
		one = &sharedSet{}
		s.known[ref] = one
	}
	s.lock.Unlock()
	one.lock.Lock()
	defer one.lock.Unlock()
	if one.set != nil && !one.at.Before(since) {
		return one.set, one.revision, nil
	}
	at := a.Clock.Now()
	set, err := a.Typed.AppsV1().DaemonSets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	revision, err := a.newestRevision(ctx, set)
	if err != nil {
		return nil, "", err
	}
	one.at, one.set, one.revision = at, set, revision
	return set, revision, nil
}

// newestRevision is the hash of a DaemonSet's current template; empty while the controller has not observed it.
func (a *Actor) newestRevision(ctx context.Context, set *appsv1.DaemonSet) (string, error) {
	if set.Status.ObservedGeneration < set.Generation {
		return "", nil
	}
	list, err := a.Typed.AppsV1().ControllerRevisions(set.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return "", err
	}
	newest, hash := int64(-1), ""
	for i := range list.Items {
		if revision := &list.Items[i]; metav1.IsControlledBy(revision, set) && revision.Revision > newest {
			newest, hash = revision.Revision, revision.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}
	return hash, nil
}
