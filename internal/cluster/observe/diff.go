package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// closeBy is how far two looks may be apart for the time of the later one to count as the time of what happened.
const closeBy = time.Minute

// Diff are the events between two looks, in the order of their objects.
func Diff(before, after State) []Event {
	d := differ{before: before.At, now: after.At}
	for _, name := range names(before.Nodes, after.Nodes) {
		old, was := before.Nodes[name]
		now, is := after.Nodes[name]
		d.node("node "+name, old, now, was, is)
		_, left := before.Leaving[name]
		if _, leaving := after.Leaving[name]; leaving && !left && is && !now.Cordoned {
			d.add("node "+name, "is about to be removed")
		}
	}
	for _, name := range names(before.DaemonSets, after.DaemonSets) {
		old, was := before.DaemonSets[name]
		now, is := after.DaemonSets[name]
		d.daemonSet("DaemonSet "+name, old, now, was, is)
	}
	if before.PodsAt.Before(after.PodsAt) && !before.PodsAt.IsZero() {
		d.before = before.PodsAt
		d.pods(before.Pods, after.Pods)
	}
	return d.events
}

func names[T any](a, b map[string]T) []string {
	all := slices.Sorted(maps.Keys(a))
	for name := range b {
		if _, known := a[name]; !known {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// differ collects events between two moments.
type differ struct {
	before, now time.Time
	events      []Event
}

// add adds an event whose time is not known better than by the two looks.
func (d *differ) add(object, format string, args ...any) {
	event := Event{At: d.now, Object: object, What: fmt.Sprintf(format, args...)}
	if d.now.Sub(d.before) > closeBy {
		event.After = d.before
	}
	d.events = append(d.events, event)
}

// at adds an event with its time, as the cluster says it, if that lies between the two looks.
func (d *differ) at(at time.Time, object, format string, args ...any) {
	if at.IsZero() || at.After(d.now) || !at.After(d.before.Add(-closeBy)) {
		d.add(object, format, args...)
		return
	}
	d.events = append(d.events, Event{At: at, Object: object, What: fmt.Sprintf(format, args...)})
}

func (d *differ) node(name string, old, now Node, was, is bool) {
	switch {
	case !was:
		d.add(name, "joined")
		return
	case !is:
		d.add(name, "left the cluster")
		return
	}
	switch ready := now.Ready == corev1.ConditionTrue; {
	case ready && old.Ready != corev1.ConditionTrue:
		d.at(now.Since, name, "is Ready again")
	case !ready && old.Ready == corev1.ConditionTrue:
		d.at(now.Since, name, "is not Ready: %s", short(now.Why))
	case ready && now.Since.After(old.Since):
		d.at(now.Since, name, "is Ready again, after it was not Ready for some time since the previous look")
	}
	if old.Boot != now.Boot && old.Boot != "" && now.Boot != "" {
		d.add(name, "was restarted")
	}
	if old.Kubelet != now.Kubelet && old.Kubelet != "" && now.Kubelet != "" {
		d.add(name, "runs kubelet %s, before %s", now.Kubelet, old.Kubelet)
	}
	switch {
	case now.Cordoned && !old.Cordoned:
		d.add(name, "was cordoned")
	case !now.Cordoned && old.Cordoned:
		d.add(name, "was uncordoned")
	}
}

func (d *differ) daemonSet(name string, old, now DaemonSet, was, is bool) {
	switch {
	case !was:
		d.add(name, "was created, for %d nodes", now.Desired)
		return
	case !is:
		d.add(name, "was deleted")
		return
	}
	rolls := func() string {
		return fmt.Sprintf("%d of %d pods are updated, %d ready", now.Updated, now.Desired, now.Ready)
	}
	switch {
	case now.Generation != old.Generation && now.whole():
		d.add(name, "was changed and rolled out (generation %d, before %d)", now.Generation, old.Generation)
	case now.Generation != old.Generation:
		d.add(name, "was changed (generation %d, before %d): a rollout begins", now.Generation, old.Generation)
	case old.whole() && !now.whole():
		d.add(name, "is not whole: %s", rolls())
	case !old.whole() && now.whole():
		d.add(name, "is complete: all %d pods are updated and ready", now.Desired)
	}
}

// pods adds one event for each kind of thing that happened to pods.
func (d *differ) pods(old, now map[string]Pods) {
	made, restarted, evicted := map[string]int{}, map[string]int{}, map[string]int{}
	for name, p := range now {
		made[name] = p.New
		restarted[name] = p.Restarts - old[name].Restarts
		evicted[name] = p.Evicted - old[name].Evicted
	}
	d.count("made", made)
	d.count("restarted", restarted)
	d.count("evicted by the kubelet", evicted)
}

// maxNamed bounds the workloads that an event about pods names.
const maxNamed = 3

func (d *differ) count(what string, of map[string]int) {
	sum := 0
	maps.DeleteFunc(of, func(_ string, n int) bool { return n <= 0 })
	for _, n := range of {
		sum += n
	}
	if sum == 0 {
		return
	}
	most := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		if of[a] != of[b] {
			return of[b] - of[a]
		}
		return strings.Compare(a, b)
	})
	var named []string
	for _, name := range most[:min(len(most), maxNamed)] {
		named = append(named, fmt.Sprintf("%d of %s", of[name], name))
	}
	text := strings.Join(named, ", ")
	if n := len(most) - len(named); n > 0 {
		text += fmt.Sprintf(" and %d more workloads", n)
	}
	object, verb := "pods", "were"
	if sum == 1 {
		object, verb = "pod", "was"
	}
	if what == "restarted" {
		object, verb = "containers", "were"
		if sum == 1 {
			object, verb = "container", "was"
		}
	}
	d.add(fmt.Sprintf("%d %s", sum, object), "%s %s: %s", verb, what, text)
}

// longest bounds a message of the cluster, in bytes.
const longest = 120

func short(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return "no reason is given"
	}
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}
