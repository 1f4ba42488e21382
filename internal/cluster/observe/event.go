package observe

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Event is something that happened in the cluster.
type Event struct {
	At time.Time `json:"at"`
	// After is set if it happened at any time between After and At: no look was taken in between.
	After time.Time `json:"after,omitzero"`
	// Object is what it happened to, such as "node b-1", and What says what, in words that follow the object's name.
	Object string `json:"object"`
	What   string `json:"what"`
	// Count is how often Kubernetes saw it, if the event is one of Kubernetes'; else 0.
	Count int `json:"count,omitempty"`
}

// String is the event in one line, without its time.
func (e Event) String() string {
	text := e.Object + " " + e.What
	if e.Count > 1 {
		text += fmt.Sprintf(" (%d times)", e.Count)
	}
	if !e.After.IsZero() {
		text += " (at some time since " + e.After.UTC().Format(time.TimeOnly) + ")"
	}
	return text
}

// same says whether two events are one, of which Kubernetes has counted more meanwhile.
func (e Event) same(o Event) bool {
	return e.Object == o.Object && e.What == o.What && (e.Count > 0) == (o.Count > 0) &&
		e.At.Truncate(time.Minute).Equal(o.At.Truncate(time.Minute))
}

// Most is how many events are kept: the latest.
const Most = 1000

// Union are the events of both lists, in the order of their times, and how many did not fit.
func Union(a, b []Event) (all []Event, dropped int) {
	all = slices.Clone(a)
	known := map[string][]int{} // by object
	for i := range all {
		known[all[i].Object] = append(known[all[i].Object], i)
	}
	for _, event := range b {
		i := slices.IndexFunc(known[event.Object], func(i int) bool { return all[i].same(event) })
		if i < 0 {
			known[event.Object] = append(known[event.Object], len(all))
			all = append(all, event)
			continue
		}
		one := &all[known[event.Object][i]]
		one.Count = max(one.Count, event.Count)
		if event.At.Before(one.At) {
			one.At = event.At
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Object, b.Object))
	})
	dropped = max(0, len(all)-Most)
	return all[dropped:], dropped
}
