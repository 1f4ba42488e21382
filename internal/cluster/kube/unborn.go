package kube

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step"
)

// unbornFor is how old the latest event about a pod that was not created may be: the controllers of Kubernetes try
// again, at first within seconds.
const unbornFor = 10 * time.Minute

// unborn reports that the API server refuses to create a workload's pods, of which there are so many: a quota, Pod
// Security, a webhook. Only an event says so. It is tolerated like what ails others' pods, since a webhook may come
// back.
func (a *Actor) unborn(ctx context.Context, ref step.Ref, pods int) (trouble, error) {
	if _, wanted, err := a.sized(ctx, ref); err != nil || pods >= wanted {
		return trouble{}, err
	}
	events, err := a.Typed.CoreV1().Events(ref.Namespace).List(ctx,
		metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
	if apierrors.IsForbidden(err) {
		return trouble{}, nil // roles of earlier versions lack it
	}
	if err != nil {
		return trouble{}, err
	}
	why, last := "", a.Clock.Now().Add(-unbornFor)
	for i := range events.Items {
		event := &events.Items[i]
		if at := lastSeen(event); event.Reason == "FailedCreate" && of(event, ref) && at.After(last) {
			why, last = strings.TrimPrefix(event.Message, "Error creating: "), at
		}
	}
	if why == "" {
		return trouble{}, nil
	}
	_, hint := outage.DeniedBy(why)
	return trouble{why: outage.Unborn(ref.String(), printable(why)),
		bears: stuckForOthers, hint: hint}, nil
}

// of reports whether an event is about a workload, or about a ReplicaSet of a Deployment.
func of(event *corev1.Event, ref step.Ref) bool {
	object := event.InvolvedObject
	if object.Kind == ref.Kind {
		return object.Name == ref.Name
	}
	hash, ok := strings.CutPrefix(object.Name, ref.Name+"-")
	return ref.Kind == "Deployment" && object.Kind == "ReplicaSet" && ok && !strings.Contains(hash, "-")
}

// Unready says why a workload has fewer pods that are ready than it wants, and what a person can do; "" if no cause is
// known.
func (a *Actor) Unready(ctx context.Context, ref step.Ref) (why, hint string, err error) {
	found, err := a.stuckWorkload(ctx, &patience{silent: true}, ref, true)
	return found.why, found.hint, err
}
