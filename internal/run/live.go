package run

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/run/report"
)

// Live reads what runs in the cluster now, with the rights of its client.
type Live struct{ Client *kube.Client }

// RunningPod is a pod of the user on a node.
type RunningPod struct {
	Namespace, Name string
	Made            time.Time
	// Restarts of its containers count if the last one was since the moment that was asked for; else they are 0.
	Restarts    int
	HostNetwork bool
	// Ended is true for a pod whose containers do not run any more.
	Ended bool
}

// PodsOn are the pods on a node, without Theseus' own. The API server answers from its cache, which has an index of
// pods by node.
func (l Live) PodsOn(ctx context.Context, node string, since time.Time) ([]RunningPod, error) {
	ctx, cancel := l.Client.Call(ctx)
	defer cancel()
	list, err := l.Client.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0",
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, err
	}
	var all []RunningPod
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Namespace == v1alpha1.Namespace || pod.Spec.NodeName != node {
			continue
		}
		all = append(all, RunningPod{Namespace: pod.Namespace, Name: pod.Name, Made: pod.CreationTimestamp.Time,
			Restarts: restartsSince(pod, since), HostNetwork: pod.Spec.HostNetwork,
			Ended: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed})
	}
	return all, nil
}

// podsAtOnce bounds the pods of one answer.
const podsAtOnce = 500

// Workloads counts the pods of all workloads of the cluster, and the restarts of their containers since a moment. It
// reads all pods, which takes seconds with many nodes. It does not ask for resource version 0: then the API server
// would ignore the limit, and answer with all pods at once.
func (l Live) Workloads(ctx context.Context, since time.Time) ([]report.WorkloadOutcome, error) {
	counts := map[string]report.WorkloadOutcome{}
	options := metav1.ListOptions{Limit: podsAtOnce}
	for {
		list, err := l.Client.Typed.CoreV1().Pods("").List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Namespace == v1alpha1.Namespace {
				continue
			}
			kind, name, _ := strings.Cut(observe.Workload(pod), " ")
			if name = strings.TrimPrefix(name, pod.Namespace+"/"); kind == "Node" {
				name = pod.Name // a static pod is a workload by itself, as in a plan
			}
			key := kind + " " + pod.Namespace + "/" + name
			one := counts[key]
			one.Kind, one.Namespace, one.Name = kind, pod.Namespace, name
			one.Pods++
			one.RestartsAfter += restartsSince(pod, since)
			counts[key] = one
		}
		if list.Continue == "" {
			return slices.Collect(maps.Values(counts)), nil
		}
		options.Continue = list.Continue
	}
}
