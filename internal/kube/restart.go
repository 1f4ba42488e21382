package kube

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/step"
)

// restarted reports whether a node runs a DaemonSet's current template, Ready.
func (a *Actor) restarted(ctx context.Context, action step.Action) (bool, error) {
	_, missing, err := a.outdated(ctx, action)
	return missing == "" && err == nil, err
}

// restart deletes the pod of an earlier template and waits for its successor.
func (a *Actor) restart(ctx context.Context, action step.Action) error {
	said := ""
	for {
		pods, missing, err := a.outdated(ctx, action)
		if err != nil || missing == "" {
			return err
		}
		for i := range pods {
			err := a.Typed.CoreV1().Pods(pods[i].Namespace).Delete(ctx, pods[i].Name,
				metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pods[i].UID))})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
		if missing != said && a.Note != nil {
			a.Note("waiting: " + missing)
			said = missing
		}
		if err := a.Clock.Sleep(ctx, poll); err != nil {
			return fmt.Errorf("%s (%w)", missing, err)
		}
	}
}

// outdated finds the pods on a node that are not of the DaemonSet's newest revision and not yet ending, and
// says what is missing until the node runs that revision.
func (a *Actor) outdated(ctx context.Context, action step.Action) ([]corev1.Pod, string, error) {
	set, err := a.Typed.AppsV1().DaemonSets(action.Ref.Namespace).Get(ctx, action.Ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	revision, err := a.newestRevision(ctx, set)
	if err != nil || revision == "" {
		return nil, action.Ref.String() + " has not been looked at by its controller yet", err
	}
	pods, err := a.podsOn(ctx, action.NodeName, set.Namespace, metav1.FormatLabelSelector(set.Spec.Selector))
	if err != nil {
		return nil, "", err
	}
	var outdated []corev1.Pod
	missing := "no pod of " + action.Ref.String() + " on " + action.NodeName
	for _, pod := range pods {
		switch {
		case !metav1.IsControlledBy(&pod, set):
			continue
		case pod.DeletionTimestamp != nil:
			return outdated, "pod " + pod.Name + " is ending", nil
		case pod.Labels[appsv1.ControllerRevisionHashLabelKey] != revision:
			outdated = append(outdated, pod)
			missing = "pod " + pod.Name + " is of an earlier template"
		case !podReady(&pod):
			missing = "pod " + pod.Name + " is not Ready"
		case len(outdated) == 0:
			missing = ""
		}
	}
	return outdated, missing, nil
}

// newestRevision is the hash of a DaemonSet's current template; empty while its controller has not seen it.
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
