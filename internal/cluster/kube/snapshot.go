package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// FromLive is the source of objects read from an API server.
const FromLive = "live"

const (
	pageSize = 500 // objects per page of a list
	readers  = 8   // concurrent lists
)

// Snapshot reads all resources of a snapshot, in parallel and in pages. If a resource cannot be read because of
// missing permissions, or because the server does not have it, Sources says so, and there is no error. It is an
// error if the server cannot be reached (*UnreachableError) or the context ends.
func Snapshot(ctx context.Context, client *Client, version string, now time.Time) (*cluster.Snapshot, error) {
	info, err := client.serverVersion(ctx)
	if err != nil {
		return nil, err
	}
	s := &cluster.Snapshot{
		APIVersion: v1alpha1.APIVersion,
		Kind:       cluster.Kind,
		Theseus:    version,
		TakenAt:    metav1.NewTime(now.UTC().Truncate(time.Second)),
		Kubernetes: info.GitVersion,
	}
	r := reader{client: client}
	tasks := append(r.coreTasks(s), r.apiServers(s))
	var other sync.Mutex
	keep := func(objects []unstructured.Unstructured) {
		other.Lock()
		defer other.Unlock()
		s.Other = append(s.Other, objects...)
	}
	tasks = append(tasks, r.registrationTasks(keep)...)
	client.Discovery.Invalidate() // kinds that the cluster has got since this process began
	networkTasks, found := r.networkTasks(keep)
	tasks = append(tasks, networkTasks...)

	namedTasks, groups := r.namedTasks(append(otherPolicies(), deployers()...), keep)
	tasks, found = append(tasks, namedTasks...), append(found, groups...)

	sources, err := runTasks(ctx, tasks)
	if err != nil {
		return nil, err
	}
	s.Sources = append(sources, found...)
	if s.Rights, err = r.ask(ctx, needs()); err != nil {
		s.Sources = append(s.Sources, unread("rights", err))
	} else {
		s.Sources = append(s.Sources, cluster.Source{Resource: "rights", From: FromLive})
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cluster.Trim(s)
	return s, nil
}

// task reads one resource and returns its source, or why it could not be read.
type task func(context.Context) cluster.Source

// runTasks runs all tasks with limited concurrency, and keeps their order.
func runTasks(ctx context.Context, tasks []task) ([]cluster.Source, error) {
	sources := make([]cluster.Source, len(tasks))
	slots := make(chan struct{}, readers)
	var group sync.WaitGroup
	for i, run := range tasks {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			sources[i] = run(ctx)
		})
	}
	group.Wait()
	return sources, ctx.Err()
}

type reader struct{ client *Client }

// coreTasks read the resources of Kubernetes itself, each into its own field.
func (r reader) coreTasks(s *cluster.Snapshot) []task {
	core, apps := r.client.Typed.CoreV1(), r.client.Typed.AppsV1()
	all := metav1.NamespaceAll
	return []task{
		read(r, "nodes", &s.Nodes, core.Nodes().List, func(l *corev1.NodeList) []corev1.Node { return l.Items }),
		read(r, "namespaces", &s.Namespaces, core.Namespaces().List,
			func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items }),
		read(r, "pods", &s.Pods, core.Pods(all).List, func(l *corev1.PodList) []corev1.Pod { return l.Items }),
		read(r, "services", &s.Services, core.Services(all).List,
			func(l *corev1.ServiceList) []corev1.Service { return l.Items }),
		r.configMaps(&s.ConfigMaps),
		read(r, "daemonsets", &s.DaemonSets, apps.DaemonSets(all).List,
			func(l *appsv1.DaemonSetList) []appsv1.DaemonSet { return l.Items }),
		read(r, "deployments", &s.Deployments, apps.Deployments(all).List,
			func(l *appsv1.DeploymentList) []appsv1.Deployment { return l.Items }),
		read(r, "replicasets", &s.ReplicaSets, apps.ReplicaSets(all).List,
			func(l *appsv1.ReplicaSetList) []appsv1.ReplicaSet { return l.Items }),
		read(r, "statefulsets", &s.StatefulSets, apps.StatefulSets(all).List,
			func(l *appsv1.StatefulSetList) []appsv1.StatefulSet { return l.Items }),
		read(r, "jobs", &s.Jobs, r.client.Typed.BatchV1().Jobs(all).List,
			func(l *batchv1.JobList) []batchv1.Job { return l.Items }),
		read(r, "poddisruptionbudgets", &s.Budgets, r.client.Typed.PolicyV1().PodDisruptionBudgets(all).List,
			func(l *policyv1.PodDisruptionBudgetList) []policyv1.PodDisruptionBudget { return l.Items }),
		read(r, "networkpolicies", &s.NetworkPolicies, r.client.Typed.NetworkingV1().NetworkPolicies(all).List,
			func(l *networkingv1.NetworkPolicyList) []networkingv1.NetworkPolicy { return l.Items }),
	}
}

// configMaps reads only the ConfigMaps of system namespaces, since others may contain private data.
func (r reader) configMaps(into *[]corev1.ConfigMap) task {
	return func(ctx context.Context) cluster.Source {
		var found []corev1.ConfigMap
		var version string
		for _, namespace := range cluster.SystemNamespaces() {
			items, v, err := pages(ctx, r.client, r.client.Typed.CoreV1().ConfigMaps(namespace).List,
				func(l *corev1.ConfigMapList) []corev1.ConfigMap { return l.Items })
			if err != nil {
				source := unread("configmaps", err)
				source.Missing = "namespace " + namespace + ": " + source.Missing
				return source
			}
			found, version = append(found, items...), v
		}
		*into = found
		return cluster.Source{Resource: "configmaps", From: FromLive, ResourceVersion: version}
	}
}

type listFunc[L any] func(context.Context, metav1.ListOptions) (L, error)

// read returns the task that lists one resource into a field of the snapshot.
func read[T any, L metav1.ListInterface](r reader, resource string, into *[]T,
	list listFunc[L], items func(L) []T) task {
	return func(ctx context.Context) cluster.Source {
		found, version, err := pages(ctx, r.client, list, items)
		if err != nil {
			return unread(resource, err)
		}
		*into = found
		return cluster.Source{Resource: resource, From: FromLive, ResourceVersion: version}
	}
}

// pages lists page by page. If the continue token expires (410, a compaction), it requests the whole list
// once without pages.
func pages[T any, L metav1.ListInterface](ctx context.Context, client *Client, list listFunc[L],
	items func(L) []T) ([]T, string, error) {
	var found []T
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := listPage(ctx, client, list, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			options, found = metav1.ListOptions{}, nil
			page, err = listPage(ctx, client, list, options)
		}
		if err != nil {
			return nil, "", err
		}
		found = append(found, items(page)...)
		if page.GetContinue() == "" {
			return found, page.GetResourceVersion(), nil
		}
		options.Continue = page.GetContinue()
	}
}

func listPage[L any](ctx context.Context, client *Client, list listFunc[L], options metav1.ListOptions) (L, error) {
	ctx, cancel := client.Call(ctx)
	defer cancel()
	return list(ctx, options)
}

// unread is the source of a resource that could not be read.
func unread(resource string, err error) cluster.Source {
	return cluster.Source{Resource: resource, Missing: reason(err), Away: outage.Passes(err) ||
		errors.Is(err, context.DeadlineExceeded)}
}

// reason returns a short reason why a resource was not read.
func reason(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return cluster.NotServed
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return fmt.Sprintf("no answer within %s", callTimeout)
	default:
		return "error: " + err.Error()
	}
}
