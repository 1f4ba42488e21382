package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster/observe"
)

// seesEvents is what an observer needs beyond the permissions of a snapshot. A run goes on without it. Only changes of
// others are observed, for which there is no plan in a file.
var seesEvents = need{"", "events", "", "list"}

// Observe looks once at what package observe compares, and adds what has happened since the look before to the
// evidence. pods is false for a look that leaves out what is expensive to read: the pods and the Events of Kubernetes.
// The first look only sees how things are. unseen says which kinds this user may not read; they stay as an earlier look
// has seen them.
func (e *Evidence) Observe(ctx context.Context, client *Client, now time.Time, pods bool) (unseen string, err error) {
	before, since := e.observed()
	var o observe.Objects
	var refused []string
	read := func(kind string, err error) error {
		if apierrors.IsForbidden(err) {
			refused = append(refused, kind)
			return nil
		}
		return err
	}
	o.Nodes, err = cached(ctx, func(ctx context.Context, options metav1.ListOptions) ([]corev1.Node, string, error) {
		list, err := client.Typed.CoreV1().Nodes().List(ctx, options)
		return list.Items, list.Continue, err
	})
	if err = read("nodes", err); err != nil {
		return "", err
	}
	o.DaemonSets, err = cached(ctx, func(ctx context.Context,
		options metav1.ListOptions) ([]appsv1.DaemonSet, string, error) {
		list, err := client.Typed.AppsV1().DaemonSets("").List(ctx, options)
		return list.Items, list.Continue, err
	})
	if err = read("daemonsets", err); err != nil {
		return "", err
	}
	var events []observe.Event
	if o.NoPods = !pods; pods {
		o.Pods, err = cached(ctx, func(ctx context.Context, options metav1.ListOptions) ([]corev1.Pod, string, error) {
			list, err := client.Typed.CoreV1().Pods("").List(ctx, options)
			return list.Items, list.Continue, err
		})
		if apierrors.IsForbidden(err) {
			o.NoPods = true
		}
		if err = read("pods", err); err != nil {
			return "", err
		}
		told, err := cached(ctx, func(ctx context.Context, options metav1.ListOptions) ([]corev1.Event, string, error) {
			list, err := client.Typed.CoreV1().Events("").List(ctx, options)
			return list.Items, list.Continue, err
		})
		if err = read("events", err); err != nil {
			return "", err
		}
		if since.IsZero() {
			since = now
		}
		events = observe.FromKubernetes(told, since)
	}
	state, from := observe.StateOf(o, now, before), observe.State{}
	if before != nil {
		from = *before
	}
	from.Nodes, state.Nodes = both(from.Nodes, state.Nodes, len(o.Nodes) > 0)
	from.DaemonSets, state.DaemonSets = both(from.DaemonSets, state.DaemonSets, !slices.Contains(refused, "daemonsets"))
	if before != nil {
		events = append(events, observe.Diff(from, state)...)
	}
	e.note(state, events)
	return strings.Join(refused, ", "), nil
}

// both are the objects of two looks that can be compared. Those that this look has not read stay as they were, and
// those that no look before has read, which are nil, were as they are now.
func both[T any](before, now map[string]T, read bool) (from, to map[string]T) {
	switch {
	case !read:
		return before, before
	case before == nil:
		return now, now
	}
	return before, now
}

// cached lists all objects from the API server's cache, in pages. The cache may be a moment old.
func cached[T any](ctx context.Context, list func(context.Context, metav1.ListOptions) ([]T, string, error)) (all []T,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	options := metav1.ListOptions{ResourceVersion: "0", Limit: pageSize}
	for {
		items, next, err := list(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("look at the cluster: %w", err)
		}
		all = append(all, items...)
		if next == "" {
			return all, nil
		}
		options.Continue, options.ResourceVersion = next, ""
	}
}

// Looks is a time in which a process looked at the cluster again and again, or just once.
type Looks struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

const (
	// steady is how far two looks may be apart to be of one time.
	steady = 2 * time.Minute
	// mostLooks bounds the times that are kept: the latest.
	mostLooks = 500
)

// observed is the state at the last look, nil if there was none, and when the first look was.
func (e *Evidence) observed() (last *observe.State, since time.Time) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if len(e.looks) > 0 {
		since = e.looks[0].From
	}
	return e.state, since
}

// Leaves are the nodes that have left the cluster, since they began to leave, and all that have left or are about to.
func (e *Evidence) Leaves() (left, away map[string]time.Time) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.state == nil {
		return nil, nil
	}
	away = maps.Clone(e.state.Left)
	if away == nil {
		away = map[string]time.Time{}
	}
	for node, since := range e.state.Leaving {
		if _, has := away[node]; !has {
			away[node] = since
		}
	}
	return e.state.Left, away
}

// note keeps a look.
func (e *Evidence) note(state observe.State, events []observe.Event) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.state, e.grown, e.news = &state, true, e.news || len(events) > 0
	e.happened(events)
	if n := len(e.looks); n > 0 && state.At.Sub(e.looks[n-1].To) < steady {
		e.looks[n-1].To = state.At
		return
	}
	e.looks = append(e.looks, Looks{state.At, state.At})
	if n := len(e.looks); n > mostLooks { // the first one stays: it says since when
		e.looks = append(e.looks[:1], e.looks[n-mostLooks+1:]...)
	}
}

// happened adds events. The caller holds the lock.
func (e *Evidence) happened(events []observe.Event) {
	all, dropped := observe.Union(e.events, events)
	e.events, e.eventsDropped = all, e.eventsDropped+dropped
}
