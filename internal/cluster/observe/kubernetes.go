package observe

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// told are the reasons of Kubernetes' Events that may explain a loss, and the words for them.
var told = map[string]string{
	"NodeNotReady": "is not Ready", "NodeReady": "is Ready", "Rebooted": "was restarted",
	"RegisteredNode": "was registered", "RemovingNode": "was removed", "NodeNotSchedulable": "was cordoned",
	"NodeSchedulable": "was uncordoned", "Starting": "started its kubelet", "SystemOOM": "ran out of memory",
	"NodeHasDiskPressure": "has too little disk space", "NodeHasInsufficientMemory": "has too little memory",
	"NodeHasInsufficientPID": "has too few process IDs", "Evicted": "were evicted",
	"TaintManagerEviction": "were evicted because of a taint", "Preempted": "were preempted",
	"FailedCreatePodSandBox": "could not be connected or started (FailedCreatePodSandBox)",
	"NetworkNotReady":        "had no network (NetworkNotReady)",
	"SandboxChanged":         "were started again with another sandbox",
	"BackOff":                "crashed again and again", "Unhealthy": "failed a probe of their kubelet",
	"FailedDaemonPod": "had failed pods deleted", "SuccessfulCreate": "made pods", "SuccessfulDelete": "deleted pods",
	"FailedCreate": "could not make pods", "ScalingReplicaSet": "scaled a ReplicaSet",
	"LeaderElection": "has another leader",
}

// named are the kinds whose events name the object. Events of others, such as pods, are summed up by their namespace.
var named = []string{"Node", "DaemonSet", "Deployment", "StatefulSet", "Lease"}

// group is what events of Kubernetes have in common that are told as one.
type group struct{ object, what string }

// FromKubernetes are the events of Kubernetes' since a moment that may explain a loss, those of pods in numbers.
func FromKubernetes(list []corev1.Event, since time.Time) []Event {
	type occurrence struct {
		group
		at    time.Time
		count int
	}
	var seen []occurrence
	for i := range list {
		e := &list[i]
		what := told[e.Reason]
		first, last, count := Times(e)
		of := e.InvolvedObject
		if what == "" || last.Before(since) || of.Namespace == v1alpha1.Namespace ||
			e.Reason == "Starting" && cmp.Or(e.Source.Component, e.ReportingController) != "kubelet" {
			continue
		}
		if first.Before(since) {
			first = last
		}
		object := "pods in " + of.Namespace
		if slices.Contains(named, of.Kind) {
			object = of.Kind + " " + strings.TrimPrefix(of.Namespace+"/"+of.Name, "/")
			if of.Kind == "Node" {
				object = "node " + of.Name
			}
		} else if of.Kind != "Pod" {
			object = of.Kind + "s in " + of.Namespace
		} else if e.Reason == "NodeNotReady" { // Kubernetes tells it of each pod of the node, too
			what = "are on a node that is not Ready"
		}
		seen = append(seen, occurrence{group{object, what}, first, count})
	}
	slices.SortStableFunc(seen, func(a, b occurrence) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.object, b.object))
	})
	var events []Event
	open := map[group]int{}
	for _, o := range seen {
		i, known := open[o.group]
		if known && events[i].At.Truncate(time.Minute).Equal(o.at.Truncate(time.Minute)) {
			events[i].Count += o.count
			continue
		}
		open[o.group] = len(events)
		events = append(events, Event{At: o.at, Object: o.object, What: o.what, Count: o.count})
	}
	return events
}

// Times are when an event of Kubernetes was first and last seen, and how often. Reporters fill in different fields.
func Times(e *corev1.Event) (first, last time.Time, count int) {
	first, last, count = e.FirstTimestamp.Time, e.LastTimestamp.Time, max(1, int(e.Count))
	if first.IsZero() {
		first = e.EventTime.Time
	}
	if e.Series != nil {
		last, count = e.Series.LastObservedTime.Time, max(count, int(e.Series.Count))
	}
	if first.IsZero() {
		first = e.CreationTimestamp.Time
	}
	if last.Before(first) {
		last = first
	}
	return first, last, count
}
