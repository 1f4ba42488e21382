package scratch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
)

// Relabel changes the labels of nodes as the rehearsed change does.
func (s *Scratch) Relabel(ctx context.Context, all []rehearsal.Relabel) error {
	return s.relabel(ctx, all, rehearsal.Relabel.Patch)
}

// Unlabel takes that back.
func (s *Scratch) Unlabel(ctx context.Context, all []rehearsal.Relabel) error {
	return s.relabel(ctx, all, rehearsal.Relabel.Back)
}

func (s *Scratch) relabel(ctx context.Context, all []rehearsal.Relabel,
	decide func(rehearsal.Relabel, *corev1.Node) ([]byte, error)) error {
	for _, one := range all {
		if _, err := s.patch(ctx, one.Node, func(live *corev1.Node) ([]byte, error) {
			return decide(one, live)
		}); err != nil {
			return fmt.Errorf("the labels of Node %s: %w", one.Node, err)
		}
	}
	return nil
}

// Renew evicts a pod of each of these workloads, such as Deployment shop/web, that a controller replaces. A pod that a
// budget keeps stays: the change does not ask for evictions.
func (s *Scratch) Renew(ctx context.Context, workloads map[string]bool) (n int, err error) {
	var pods *corev1.PodList
	if err := s.call(ctx, func(ctx context.Context) (err error) {
		pods, err = s.Client.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		return err
	}); err != nil {
		return 0, err
	}
	done := map[string]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		workload := observe.Workload(pod)
		if !workloads[workload] || done[workload] || pod.DeletionTimestamp != nil ||
			metav1.GetControllerOf(pod) == nil {
			continue
		}
		done[workload] = true
		calling, cancel := s.Client.Call(ctx)
		err := s.Client.Typed.CoreV1().Pods(pod.Namespace).EvictV1(calling, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}})
		cancel()
		switch {
		case err == nil:
			n++
		case apierrors.IsTooManyRequests(err): // a budget keeps it
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			return n, fmt.Errorf("evict Pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return n, nil
}
