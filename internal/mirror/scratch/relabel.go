package scratch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

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

// evictAtMost bounds the retries of one eviction while the API server is unavailable: what denies it looks the same.
const evictAtMost = 10 * time.Second

// Renew evicts a pod of each of these workloads, such as Deployment shop/web, that a controller replaces. A pod whose
// eviction is denied stays, such as by a budget: the change does not ask for evictions. It returns the workloads of
// which no new pod is made.
func (s *Scratch) Renew(ctx context.Context, workloads map[string]bool) (n int, kept []string, err error) {
	var pods *corev1.PodList
	if err := s.call(ctx, func(ctx context.Context) (err error) {
		pods, err = s.Client.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		return err
	}); err != nil {
		return 0, nil, err
	}
	done, begun := map[string]bool{}, time.Now()
	for i := range pods.Items {
		pod := &pods.Items[i]
		workload := observe.Workload(pod)
		if !workloads[workload] || done[workload] || pod.DeletionTimestamp != nil {
			continue
		}
		done[workload] = true
		if metav1.GetControllerOf(pod) == nil {
			kept = append(kept, workload)
			continue
		}
		var denied error
		limits := patience
		limits.Away = min(evictAtMost, patience.Away-time.Since(begun))
		err := s.callWithin(ctx, limits, func(ctx context.Context) error {
			denied = nil
			err := s.Client.Typed.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
				DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}})
			if apierrors.IsTooManyRequests(err) { // a budget, which may deny it for ever
				denied, err = err, nil
			}
			return err
		})
		switch err = cmp.Or(denied, err); {
		case err == nil:
			n++
		case ctx.Err() != nil:
			return n, kept, ctx.Err()
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it has gone, and its controller makes another one
		default: // such as two budgets that select it, or a webhook
			s.Note(fmt.Sprintf("Pod %s/%s is not evicted: %v", pod.Namespace, pod.Name, err))
			kept = append(kept, workload)
		}
	}
	slices.Sort(kept)
	return n, kept, nil
}
