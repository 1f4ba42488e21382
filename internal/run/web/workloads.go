package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// maxWorkloads bounds the table of workloads.
	maxWorkloads = 200
	// podsWithin bounds how long reading all pods may take, with the wait for those who read them already.
	podsWithin = time.Minute
)

// Workloads are those of the plan, and others to which something happened.
type Workloads struct {
	// List has those with restarts and evictions first. More is how many are left out.
	List []WorkloadDetail `json:"list,omitempty"`
	More int              `json:"more,omitempty"`
	// Unread is true if pods and restarts were not read.
	Unread bool `json:"unread,omitempty"`
	// Note says of when the table is, and what is missing in it.
	Note string `json:"note"`
}

// WorkloadDetail is what happened to the pods of one workload until now.
type WorkloadDetail struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Moved and Evicted are by the journal. Pods moved back do not count as moved.
	Moved   int `json:"moved"`
	Evicted int `json:"evicted"`
	// Pods and Restarts are by the cluster: now, and since the run began. Unread is true if no pod says that it is of
	// this workload: it has none now, or names another owner, such as the ReplicaSet of an Argo Rollout.
	Pods     int  `json:"pods"`
	Restarts int  `json:"restarts"`
	Unread   bool `json:"unread,omitempty"`
	// ShortMillis is how long, in ms, it lacked ready pods after evictions.
	ShortMillis int64 `json:"shortMillis,omitempty"`
}

// affected are the workloads that plan and journal know, at a length of the journal.
type affected struct {
	records   int
	list      []WorkloadDetail // never changed once made; nil before the first time
	strangers int              // moved pods that are of none of them
	evictions run.Evictions
	evicted   map[string]*WorkloadDetail
}

// workloads are those that plan and journal know, and how many moved pods are of none of them. While it works, nothing
// can be published: it decodes each record once.
func (b *Board) workloads() (all []WorkloadDetail, strangers int) {
	if b.affected.list != nil && b.affected.records == len(b.records) {
		return b.affected.list, b.affected.strangers
	}
	b.countEvictions()
	found := map[string]*WorkloadDetail{}
	for key, one := range b.affected.evicted {
		found[key] = new(*one)
	}
	owner := map[string]*WorkloadDetail{} // by pod
	for _, w := range b.plan.Workloads {
		one := workloadIn(found, w.Kind, w.Namespace, w.Name)
		for _, pods := range w.Pods {
			for _, name := range pods {
				owner[w.Namespace+"/"+name] = one
			}
		}
	}
	last := map[string]report.Move{}
	for _, m := range b.model.Moves {
		if m.Namespace != v1alpha1.Namespace {
			last[m.Namespace+"/"+m.Name] = m
		}
	}
	for pod, m := range last {
		switch one := owner[pod]; {
		case m.Back:
		case one == nil:
			strangers++
		default:
			one.Moved++
		}
	}
	all = []WorkloadDetail{}
	for _, one := range found {
		all = append(all, *one)
	}
	b.affected.list, b.affected.strangers = all, strangers
	return all, strangers
}

// countEvictions takes the records since it was last called.
func (b *Board) countEvictions() {
	a := &b.affected
	if a.evicted == nil {
		a.evicted = map[string]*WorkloadDetail{}
	}
	for _, r := range b.records[a.records:] {
		if action := b.script.Find(r.Action); r.Event != engine.Acted || action == nil || action.Op() != step.OpEvict {
			continue
		}
		for _, pod := range a.evictions.Of(r) {
			part := strings.SplitN(pod.Workload, "/", 3)
			if len(part) != 3 || part[1] == v1alpha1.Namespace {
				continue
			}
			one := workloadIn(a.evicted, part[0], part[1], part[2])
			if one.ShortMillis += pod.WholeMillis; !pod.Again {
				one.Evicted++
			}
		}
	}
	a.records = len(b.records)
}

func workloadIn(all map[string]*WorkloadDetail, kind, namespace, name string) *WorkloadDetail {
	key := kind + "/" + namespace + "/" + name
	if all[key] == nil {
		all[key] = &WorkloadDetail{Kind: kind, Namespace: namespace, Name: name}
	}
	return all[key]
}

// workloads serves the table. All pods of the cluster are read only for those who ask for restarts.
func (s *Server) workloads(v *View, w http.ResponseWriter, r *http.Request) {
	var all []WorkloadDetail
	var begun time.Time
	strangers := 0
	v.Feed.On(func(b *Board) { begun = b.begun(); all, strangers = b.workloads() })
	var counts []report.WorkloadOutcome
	unread := errUnasked
	if r.FormValue("restarts") != "" {
		if unread = errNoLive; s.live(v) != nil {
			counts, unread = s.count(r.Context(), s.live(v), begun)
		}
	}
	reply(w, tableOf(all, strangers, counts, unread, time.Now()))
}

var (
	// errUnasked says that restarts were not asked for.
	errUnasked = errors.New("all pods of the cluster are read only when you ask for it")
	// errTurn says that the turn of a request did not come.
	errTurn = errors.New("other users are reading all pods: try again in a minute")
)

// count reads all pods of the cluster. One request does so at a time, for the memory of this process and for the API
// server's sake.
func (s *Server) count(ctx context.Context, live Live, since time.Time) ([]report.WorkloadOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, podsWithin)
	defer cancel()
	select {
	case s.counting <- struct{}{}:
		defer func() { <-s.counting }()
		return live.Workloads(ctx, since)
	case <-ctx.Done():
		return nil, errTurn
	}
}

func tableOf(known []WorkloadDetail, strangers int, counts []report.WorkloadOutcome, unread error,
	at time.Time) Workloads {
	all := map[string]*WorkloadDetail{}
	for _, one := range known {
		one.Unread = true
		*workloadIn(all, one.Kind, one.Namespace, one.Name) = one
	}
	unmatched := len(all)
	for _, c := range counts {
		key := c.Kind + "/" + c.Namespace + "/" + c.Name
		if all[key] == nil && c.RestartsAfter == 0 {
			continue // the plan does not know it, and nothing happened to it
		}
		one := workloadIn(all, c.Kind, c.Namespace, c.Name)
		if one.Unread {
			unmatched--
		}
		one.Pods, one.Restarts, one.Unread = c.Pods, c.RestartsAfter, false
	}
	t := Workloads{Unread: unread != nil}
	for _, one := range slices.Collect(maps.Values(all)) {
		t.List = append(t.List, *one)
	}
	slices.SortFunc(t.List, func(a, b WorkloadDetail) int {
		return cmp.Or(b.Restarts-a.Restarts, b.Evicted-a.Evicted, b.Moved-a.Moved,
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	t.More = max(len(t.List)-maxWorkloads, 0)
	t.List = t.List[:len(t.List)-t.More]
	says := []string{"Read at " + at.UTC().Format(time.TimeOnly) + " UTC."}
	if unread != nil {
		says = append(says, "Pods and restarts are not known: "+unread.Error()+".")
	} else if unmatched > 0 {
		says = append(says, cluster.Count(unmatched, "workload")+" not read: no pod has such an owner.")
	}
	if len(t.List) == 0 {
		says = append(says, "The plan has no workloads, and no pods were evicted.")
	}
	if t.More > 0 {
		says = append(says, fmt.Sprintf("%s more, with lower numbers, are not shown.",
			cluster.Count(t.More, "workload")))
	}
	if strangers > 0 {
		says = append(says, cluster.Count(strangers, "moved pod")+
			" started after the plan was made, and are in no row.")
	}
	t.Note = strings.Join(says, " ")
	return t
}
