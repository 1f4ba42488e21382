package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// podsOn reads the pods on a node that match a selector; "" are all nodes. Pods with the label of their node are read
// together with those of other nodes for which others ask at the same moment.
func (a *Actor) podsOn(ctx context.Context, node, namespace, selector string) ([]corev1.Pod, error) {
	rest, value := nodeLabel(selector)
	if value == "" || node == "" {
		return a.listPods(ctx, node, namespace, selector)
	}
	pods, err := a.nodePods.read(ctx, namespace+"\x00"+rest, value, func(values []string) ([]corev1.Pod, error) {
		if len(values) == 1 {
			return a.listPods(ctx, node, namespace, selector)
		}
		slices.Sort(values)
		among := manifest.LabelNode + " in (" + strings.Join(values, ",") + ")"
		if rest != "" {
			among = rest + "," + among
		}
		return a.listPods(ctx, "", namespace, among)
	})
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != node }), err
}

func (a *Actor) listPods(ctx context.Context, node, namespace, selector string) ([]corev1.Pod, error) {
	options := metav1.ListOptions{LabelSelector: selector}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	list, err := a.Typed.CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// nodeLabel splits a selector into the value of the label of nodes and the rest; "" if it demands no such value.
func nodeLabel(selector string) (rest, value string) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return selector, "" // the API server says it
	}
	demands, _ := parsed.Requirements()
	others := labels.NewSelector()
	for _, demand := range demands {
		if equals := demand.Operator() == selection.Equals || demand.Operator() == selection.DoubleEquals; equals &&
			demand.Key() == manifest.LabelNode && value == "" {
			value = demand.Values().UnsortedList()[0]
			continue
		}
		others = others.Add(demand)
	}
	if value == "" {
		return selector, ""
	}
	return others.String(), value
}

// nodePods lets callers that read pods of different nodes at the same moment share a list. Each list begins after all
// who share it have asked. The zero value is ready to use.
type nodePods struct {
	lock sync.Mutex
	all  map[string]*rounds
}

// rounds are the lists of pods that differ in their nodes only, one after another.
type rounds struct {
	running sync.Mutex
	next    *round // has not begun
}

type round struct {
	values []string
	done   chan struct{} // closed when the fields below are set
	pods   map[string][]corev1.Pod
	err    error
}

// read returns the pods with a value of the label of nodes, from a list that begins now or later.
func (n *nodePods) read(ctx context.Context, of, value string,
	list func(values []string) ([]corev1.Pod, error)) ([]corev1.Pod, error) {
	n.lock.Lock()
	if n.all == nil {
		n.all = map[string]*rounds{}
	}
	if n.all[of] == nil {
		n.all[of] = &rounds{}
	}
	rounds := n.all[of]
	one, leads := rounds.next, false
	if one == nil {
		one, leads = &round{done: make(chan struct{})}, true
		rounds.next = one
	}
	if !slices.Contains(one.values, value) {
		one.values = append(one.values, value)
	}
	n.lock.Unlock()
	if leads {
		n.lead(rounds, one, list)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-one.done:
	}
	if leads || ctx.Err() != nil || !errors.Is(one.err, context.Canceled) &&
		!errors.Is(one.err, context.DeadlineExceeded) {
		return slices.Clone(one.pods[value]), one.err
	}
	all, err := list([]string{value}) // the time of the one who read was over, not this caller's
	return all, err
}

// lead makes the list of a round, once the one before has ended.
func (n *nodePods) lead(rounds *rounds, one *round, list func(values []string) ([]corev1.Pod, error)) {
	rounds.running.Lock()
	defer rounds.running.Unlock()
	n.lock.Lock()
	rounds.next = nil
	values := slices.Clone(one.values)
	n.lock.Unlock()
	defer close(one.done)
	pods, err := list(values)
	one.err, one.pods = err, map[string][]corev1.Pod{}
	for _, pod := range pods {
		value := pod.Labels[manifest.LabelNode]
		one.pods[value] = append(one.pods[value], pod)
	}
}
