package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

const (
	// benchRefused bounds the retries while the API server refuses, as one that has just started does.
	benchRefused = 20 * time.Second
	// benchPoll is the time between two looks at what is left.
	benchPoll = 500 * time.Millisecond
)

// RemoveBench removes the pods and the Services of benchmarks that a label selector matches, and waits until they are
// gone, but not longer than within; then the error says what is left. It retries while the API server is away, and
// calls note with each new error (it may be nil). It deletes an object only as the one that it has listed. removed is
// how many pods there were.
func (c *Client) RemoveBench(ctx context.Context, selector string, within time.Duration,
	note func(error)) (removed int, err error) {
	pods := map[string]bool{}
	err = c.untilGone(ctx, within, note, func(ctx context.Context) ([]string, error) {
		return c.removeBench(ctx, selector, pods)
	})
	return len(pods), err
}

// untilGone repeats remove, which returns what is left, as RemoveBench says.
func (c *Client) untilGone(ctx context.Context, within time.Duration, note func(error),
	remove func(context.Context) (left []string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := time.Now()
	for {
		var left []string
		if err := outage.Retry(ctx, outage.Limits{Away: within, Refused: benchRefused}, note,
			func(ctx context.Context) (err error) {
				left, err = remove(ctx)
				return err
			}); err != nil || len(left) == 0 {
			return err
		}
		if outage.Sleep(ctx, benchPoll) != nil {
			return fmt.Errorf("%s left after %s: %s", cluster.Count(len(left), "object"),
				time.Since(began).Round(time.Second), left[0])
		}
	}
}

// removeBench deletes what is there, and returns what is left. It adds the pods to known.
func (c *Client) removeBench(ctx context.Context, selector string, known map[string]bool) (left []string, err error) {
	options := metav1.ListOptions{LabelSelector: selector}
	pods := c.Typed.CoreV1().Pods(v1alpha1.Namespace)
	var found *corev1.PodList
	if err := c.brief(ctx, func(ctx context.Context) (err error) {
		found, err = pods.List(ctx, options)
		return err
	}); err != nil {
		return nil, err
	}
	for i := range found.Items {
		pod := &found.Items[i]
		known[string(pod.UID)+pod.Name] = true
		left = append(left, "pod "+pod.Name)
		grace := int64(1)
		lost, err := c.lost(ctx, pod.Spec.NodeName)
		switch {
		case err != nil:
			return nil, err
		case lost: // no kubelet says that it has ended; the programs of a benchmark end by themselves
			grace = 0
		case pod.DeletionTimestamp != nil:
			continue
		}
		if err := c.delete(ctx, &pod.ObjectMeta, func(ctx context.Context, as metav1.DeleteOptions) error {
			as.GracePeriodSeconds = &grace
			return pods.Delete(ctx, pod.Name, as)
		}); err != nil {
			return nil, err
		}
	}
	services := c.Typed.CoreV1().Services(v1alpha1.Namespace)
	var serving *corev1.ServiceList
	if err := c.brief(ctx, func(ctx context.Context) (err error) {
		serving, err = services.List(ctx, options)
		return err
	}); err != nil {
		if apierrors.IsForbidden(err) { // a Service without pods carries nothing
			return left, nil
		}
		return nil, err
	}
	for i := range serving.Items {
		service := &serving.Items[i]
		left = append(left, "Service "+service.Name)
		if err := c.delete(ctx, &service.ObjectMeta, func(ctx context.Context, as metav1.DeleteOptions) error {
			return services.Delete(ctx, service.Name, as)
		}); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// delete deletes an object as the one that was seen; it is no error if that is gone, or replaced.
func (c *Client) delete(ctx context.Context, seen *metav1.ObjectMeta,
	call func(context.Context, metav1.DeleteOptions) error) error {
	err := c.brief(ctx, func(ctx context.Context) error {
		return call(ctx, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &seen.UID}})
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// lost reports whether nothing is heard of a node, or it is not there.
func (c *Client) lost(ctx context.Context, name string) (lost bool, err error) {
	if name == "" {
		return false, nil
	}
	err = c.brief(ctx, func(ctx context.Context) error {
		node, err := c.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		lost = apierrors.IsNotFound(err) || err == nil && !cluster.NodeReady(node)
		return err
	})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return lost, nil
	}
	return lost, err
}

// brief bounds one request; one that had no answer in time may be repeated.
func (c *Client) brief(ctx context.Context, call func(context.Context) error) error {
	one, cancel := c.Call(ctx)
	defer cancel()
	err := call(one)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return apierrors.NewTimeoutError(err.Error(), 0)
	}
	return err
}

// RemoveBenchPolicies removes the NetworkPolicies of benchmarks that a label selector matches, and waits until none is
// left, as RemoveBench does.
func (c *Client) RemoveBenchPolicies(ctx context.Context, selector string, within time.Duration,
	note func(error)) error {
	return c.untilGone(ctx, within, note, func(ctx context.Context) ([]string, error) {
		return c.removeBenchPolicies(ctx, selector)
	})
}

// removeBenchPolicies deletes what is there, and returns what there was. It deletes one after another: the rights
// for a migration do not include deletecollection.
func (c *Client) removeBenchPolicies(ctx context.Context, selector string) (left []string, err error) {
	policies := c.Typed.NetworkingV1().NetworkPolicies(v1alpha1.Namespace)
	var found *networkingv1.NetworkPolicyList
	if err := c.brief(ctx, func(ctx context.Context) (err error) {
		found, err = policies.List(ctx, metav1.ListOptions{LabelSelector: selector})
		return err
	}); err != nil {
		return nil, err
	}
	for i := range found.Items {
		policy := &found.Items[i]
		left = append(left, "NetworkPolicy "+policy.Name)
		if policy.DeletionTimestamp != nil {
			continue
		}
		if err := c.delete(ctx, &policy.ObjectMeta, func(ctx context.Context, as metav1.DeleteOptions) error {
			return policies.Delete(ctx, policy.Name, as)
		}); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// MayMakeBenchPolicy asks the API server whether it would take a NetworkPolicy and let it be deleted, and changes
// nothing.
func (c *Client) MayMakeBenchPolicy(ctx context.Context, policy *unstructured.Unstructured) error {
	if err := c.brief(ctx, func(ctx context.Context) error {
		_, err := c.Dynamic.Resource(networkingv1.SchemeGroupVersion.WithResource("networkpolicies")).
			Namespace(v1alpha1.Namespace).Apply(ctx, policy.GetName(), policy, metav1.ApplyOptions{
			FieldManager: FieldManager, Force: true, DryRun: []string{metav1.DryRunAll}})
		return err
	}); err != nil {
		return err
	}
	err := c.brief(ctx, func(ctx context.Context) error {
		return c.Typed.NetworkingV1().NetworkPolicies(v1alpha1.Namespace).Delete(ctx, policy.GetName(),
			metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	})
	if apierrors.IsNotFound(err) { // as expected: the right is checked first
		return nil
	}
	return err
}
