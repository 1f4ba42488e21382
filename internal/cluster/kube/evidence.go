package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// Evidence collects the results of the probes over a whole run. Reports in the cluster begin when a path is first
// probed, and are lost with the agent that wrote them; evidence outlives both.
type Evidence struct {
	lock    sync.Mutex
	paths   map[string]v1alpha1.Path
	planned []v1alpha1.Path        // at the last Collect
	said    []v1alpha1.ProbeReport // at the last Collect
	results map[counter]*v1alpha1.PathResult
	// plans and reports are the versions, by node, that the last Collect has read.
	plans, reports map[string]string
	grown, news    bool // since the last call of Changed
	parts          map[process]PartRun
	foreign        map[string]string // by node, a path in its report that starts on another node

	baseline []v1alpha1.ProbeReport
	// The last look at the cluster, what happened until then, and when it was looked at (Observe).
	state         *observe.State
	events        []observe.Event
	eventsDropped int
	looks         []Looks
}

// process is one run of one of Theseus' own parts.
type process struct {
	node, name string
	since      int64 // Unix time in ns
}

// PartRun is one run of one of Theseus' own parts on a node.
type PartRun struct {
	Node string `json:"node"`
	v1alpha1.Part
}

func (r PartRun) process() process { return process{r.Node, r.Name, r.Since.UnixNano()} }

// counter is one count of one path: an agent that restarts begins a new one.
type counter struct {
	path  string
	since int64 // Unix time in ns
}

// Collected is evidence as a document: all paths ever measured, the last state of each counter, and all runs of
// Theseus' own parts.
type Collected struct {
	Paths   []v1alpha1.Path       `json:"paths"`
	Results []v1alpha1.PathResult `json:"results"`
	Parts   []PartRun             `json:"parts,omitempty"`
	// Foreign has, for each node whose report contained results of paths that start on other nodes, one such path.
	Foreign map[string]string `json:"foreign,omitempty"`
	// Baseline are the counts from which the result of a plan counts (loss.Baseline), for a process that continues.
	Baseline []v1alpha1.ProbeReport `json:"baseline,omitempty"`
	// Events are what happened in the cluster, as far as it was looked at (Looks), State is the last look, and
	// EventsDropped counts the oldest events, which are not kept.
	Events        []observe.Event `json:"events,omitempty"`
	EventsDropped int             `json:"eventsDropped,omitempty"`
	Looks         []Looks         `json:"looks,omitempty"`
	State         *observe.State  `json:"state,omitempty"`
}

// NewEvidence continues from earlier evidence, which may be empty.
func NewEvidence(before Collected) *Evidence {
	e := &Evidence{paths: map[string]v1alpha1.Path{}, results: map[counter]*v1alpha1.PathResult{},
		parts: map[process]PartRun{}, foreign: map[string]string{}}
	e.Merge(before)
	return e
}

// Merge adds what another process collected. Of one counter, and of one run of a part, the later state stays.
func (e *Evidence) Merge(other Collected) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.plans, e.grown, e.news = nil, true, true
	maps.Copy(e.foreign, other.Foreign)
	if e.baseline == nil {
		e.baseline = other.Baseline
	}
	e.mergeLooks(other)
	for _, one := range other.Paths {
		if _, known := e.paths[one.ID]; !known {
			e.paths[one.ID] = one
		}
	}
	for _, result := range other.Results {
		e.add(result)
	}
	for _, run := range other.Parts {
		if known, ok := e.parts[run.process()]; !ok || known.At.Before(run.At) {
			e.ran(run)
		}
	}
}

// Happened adds only what another process saw happen in the cluster.
func (e *Evidence) Happened(other Collected) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.mergeLooks(other)
}

// Collect reads the probe plans and all reports, and adds new results of the planned paths. It is cheap enough to call
// once a second.
func (e *Evidence) Collect(ctx context.Context, a *Actor) error {
	// a path that is missed counts from the next call on, with all its results
	plans, err := a.plansWithin(ctx, time.Minute)
	if err != nil {
		return err
	}
	reports, err := a.probeReports(ctx)
	if err != nil {
		return err
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	a.foreign.Range(func(node, path any) bool {
		e.news = e.news || e.foreign[node.(string)] != path
		e.foreign[node.(string)] = path.(string)
		return true
	})
	if versions := versionsOf(plans); !known(e.plans, versions) {
		// a path that is new may be in reports that were read before
		e.plans, e.reports, e.news = versions, map[string]string{}, true
		e.planned = pathsOf(plans)
		for _, one := range e.planned {
			e.paths[one.ID] = one
		}
	}
	e.said = reports
	for _, report := range reports {
		if version := report.ResourceVersion; version != "" && e.reports[report.Name] == version {
			continue
		}
		e.reports[report.Name], e.grown = report.ResourceVersion, true
		for _, result := range report.Status.Paths {
			if _, asked := e.paths[result.ID]; asked {
				e.add(result)
			}
		}
		for _, part := range report.Status.Parts {
			e.ran(PartRun{Node: report.Name, Part: part})
		}
	}
	return nil
}

// versionsOf are the versions of the paths of plans, by node.
func versionsOf(plans []v1alpha1.ProbePlan) map[string]string {
	versions := make(map[string]string, len(plans))
	for i := range plans {
		versions[plans[i].Name] = plans[i].ResourceVersion
		if generation := plans[i].Spec.Generation; generation > 0 { // what gates ask for makes no other paths
			versions[plans[i].Name] = fmt.Sprintf("%s/%d", plans[i].UID, generation)
		}
	}
	return versions
}

// known reports whether versions are those that were read before.
func known(before, now map[string]string) bool {
	for name, version := range now {
		if former, has := before[name]; !has || former != version || version == "" {
			return false
		}
	}
	return before != nil && len(before) == len(now)
}

// Changed says what the evidence has got since the last call: grown is true if it has anything, and news if that is
// more than answered probes on paths without a fault.
func (e *Evidence) Changed() (grown, news bool) {
	e.lock.Lock()
	defer e.lock.Unlock()
	grown, news = e.grown || e.news, e.news
	e.grown, e.news = false, false
	return grown, news
}

// Planned are the paths that the probe plans had at the last Collect that succeeded. Callers must not change them.
func (e *Evidence) Planned() []v1alpha1.Path {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.planned
}

// Reports are what all nodes said at the last Collect that succeeded. Callers must not change them.
func (e *Evidence) Reports() []v1alpha1.ProbeReport {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.said
}

// mergeLooks adds what another process saw of the cluster. The caller holds the lock.
func (e *Evidence) mergeLooks(other Collected) {
	e.happened(other.Events)
	e.eventsDropped = max(e.eventsDropped, other.EventsDropped)
	if other.State != nil && (e.state == nil || e.state.At.Before(other.State.At)) {
		e.state = other.State
	}
	all := append(slices.Clone(e.looks), other.Looks...)
	slices.SortFunc(all, func(a, b Looks) int { return a.From.Compare(b.From) })
	e.looks = nil
	for _, one := range all {
		if n := len(e.looks); n > 0 && one.From.Sub(e.looks[n-1].To) < steady {
			if one.To.After(e.looks[n-1].To) {
				e.looks[n-1].To = one.To
			}
			continue
		}
		e.looks = append(e.looks, one)
	}
}

// Count keeps the reports from which the result of a plan counts, the first time.
func (e *Evidence) Count(from []v1alpha1.ProbeReport) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.baseline == nil {
		e.baseline, e.news = loss.Baseline(from), true
	}
}

// Baseline are the reports that Count kept; nil if it was not called yet.
func (e *Evidence) Baseline() []v1alpha1.ProbeReport {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.baseline
}

// ran records that a part runs.
func (e *Evidence) ran(run PartRun) {
	before, known := e.parts[run.process()]
	e.news = e.news || !known || len(before.Gone) != len(run.Gone)
	e.parts[run.process()] = run
}

// add stores a result, unless the stored one of the same counter is newer.
func (e *Evidence) add(result v1alpha1.PathResult) {
	key := counter{result.ID, result.Since.UnixNano()}
	before, ok := e.results[key]
	if ok && result.Sent < before.Sent {
		return
	}
	e.news = e.news || !ok || !grewWell(e.paths[result.ID].Denied, before, &result)
	if ok && result.Dropped > before.Dropped {
		result = remember(*before, result)
	}
	e.results[key] = &result
}

// grewWell reports whether a counter has only counted probes that had the expected result, since an earlier result of
// it.
func grewWell(denied bool, before, now *v1alpha1.PathResult) bool {
	sent, answered := now.Sent-before.Sent, now.Answered-before.Answered
	well := answered == sent
	if denied {
		well = answered == 0
	}
	return well && now.Excused == before.Excused && now.Dropped == before.Dropped &&
		before.Open == nil && now.Open == nil &&
		len(now.Gaps) == len(before.Gaps) && len(now.Stalls) == len(before.Stalls) &&
		newest(now.Stalls).Equal(newest(before.Stalls))
}

// newest is when the newest of some gaps began. Reports hold a bounded number, so a new one may have replaced another.
func newest(gaps []v1alpha1.Gap) (from time.Time) {
	for _, gap := range gaps {
		if gap.From.After(from) {
			from = gap.From
		}
	}
	return from
}

// mostGaps bounds the gaps that are kept of one counter. Reports hold fewer (loss.DefaultMaxGaps).
const mostGaps = 256

// remember adds to a result the gaps that a former one of the same counter had, and that have been dropped since for
// longer ones.
func remember(before, now v1alpha1.PathResult) v1alpha1.PathResult {
	has := map[int64]bool{}
	for _, gap := range now.Gaps {
		has[gap.From.UnixNano()] = true
	}
	gaps := slices.Clone(now.Gaps)
	for _, gap := range before.Gaps {
		if !has[gap.From.UnixNano()] && len(gaps) < mostGaps && now.Dropped > 0 {
			gaps = append(gaps, gap)
			now.Dropped--
		}
	}
	slices.SortFunc(gaps, func(a, b v1alpha1.Gap) int { return a.From.Compare(b.From) })
	now.Gaps = gaps
	return now
}

// Document returns everything collected so far, ordered by path ID and time.
func (e *Evidence) Document() Collected {
	e.lock.Lock()
	defer e.lock.Unlock()
	document := Collected{
		Paths:   make([]v1alpha1.Path, 0, len(e.paths)),
		Results: make([]v1alpha1.PathResult, 0, len(e.results)),
		Parts:   slices.Collect(maps.Values(e.parts)),
		Foreign: maps.Clone(e.foreign), Baseline: e.baseline,
		Events: slices.Clone(e.events), EventsDropped: e.eventsDropped, Looks: slices.Clone(e.looks), State: e.state,
	}
	slices.SortFunc(document.Parts, func(a, b PartRun) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name), a.Since.Compare(b.Since))
	})
	for _, id := range slices.Sorted(maps.Keys(e.paths)) {
		document.Paths = append(document.Paths, e.paths[id])
	}
	results := slices.SortedFunc(maps.Values(e.results), func(a, b *v1alpha1.PathResult) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), a.Since.Compare(b.Since))
	})
	for _, result := range results {
		document.Results = append(document.Results, *result)
	}
	return document
}

// probePlans reads the plans of all nodes, in the order of their names.
func (a *Actor) probePlans(ctx context.Context) ([]v1alpha1.ProbePlan, error) {
	return a.plansWithin(ctx, 0)
}

// plansWithin is probePlans. If the plans are watched, the proof that they are current may be as old as age.
func (a *Actor) plansWithin(ctx context.Context, age time.Duration) ([]v1alpha1.ProbePlan, error) {
	plans, _, err := kept(ctx, a, a.plans, "ProbePlan", age,
		func(o *planObject) v1alpha1.ProbePlan { return o.ProbePlan })
	plans = slices.DeleteFunc(plans, func(p v1alpha1.ProbePlan) bool { return p.Name == v1alpha1.PlanOfAll })
	slices.SortFunc(plans, func(a, b v1alpha1.ProbePlan) int { return cmp.Compare(a.Name, b.Name) })
	return plans, err
}

// pathsOf are the paths of all nodes.
func pathsOf(plans []v1alpha1.ProbePlan) []v1alpha1.Path {
	var paths []v1alpha1.Path
	for i := range plans {
		paths = append(paths, plans[i].Spec.Paths...)
	}
	return paths
}

// probeReports reads the reports of all nodes. Callers must not change them: if they are watched, all readers have the
// same.
func (a *Actor) probeReports(ctx context.Context) ([]v1alpha1.ProbeReport, error) {
	return a.reportsWithin(ctx, 0)
}

// reportsWithin is probeReports. If the reports are watched, the proof that they are current may be as old as age.
func (a *Actor) reportsWithin(ctx context.Context, age time.Duration) ([]v1alpha1.ProbeReport, error) {
	reports, err := a.readReports(ctx, age)
	if err == nil {
		a.heard.Look(reports, a.Clock.Now())
	}
	return reports, err
}

func (a *Actor) readReports(ctx context.Context, age time.Duration) ([]v1alpha1.ProbeReport, error) {
	reports, listed, err := kept(ctx, a, a.reports, "ProbeReport", age,
		func(o *reportObject) v1alpha1.ProbeReport { return o.ProbeReport })
	for i := 0; listed && i < len(reports); i++ {
		a.unpacked(&reports[i])
	}
	return reports, err
}

// unpacked makes a report from the cluster one with all results of its node's paths, and no others, and returns what of
// it its agent last wrote in full. One that cannot be read is no evidence.
func (a *Actor) unpacked(report *v1alpha1.ProbeReport) (full v1alpha1.ProbeReportStatus) {
	err := loss.Unpack(&report.Status)
	full = report.Status
	a.restored(report, err)
	return full
}

// restored adds its short report to one that was unpacked, and says if it cannot be read, once for each node.
func (a *Actor) restored(report *v1alpha1.ProbeReport, err error) {
	err = cmp.Or(err, loss.Restore(&report.Status, report.Annotations[v1alpha1.AnnotationShort]))
	if err != nil {
		if _, told := a.unread.LoadOrStore(report.Name, true); !told && a.Note != nil {
			a.Note(fmt.Sprintf("warning: the report of %s is ignored: %v; find out who wrote it", report.Name, err))
		}
	}
	a.ownResults(report)
}

// ownResults removes from a report the results of paths that start on other nodes: a node may only report on its own.
// It warns once for each node.
func (a *Actor) ownResults(report *v1alpha1.ProbeReport) {
	foreign := dropForeign(report)
	if foreign == "" {
		return
	}
	if _, told := a.foreign.LoadOrStore(report.Name, foreign); !told && a.Note != nil {
		a.Note(fmt.Sprintf("warning: the report of %s holds a result of a path that starts elsewhere, %q: ignored; no "+
			"agent writes that: find out who did", report.Name, foreign))
	}
}

// dropForeign removes the results of paths that do not start on the report's node, and returns one of them.
func dropForeign(report *v1alpha1.ProbeReport) (example string) {
	var own []v1alpha1.PathResult
	for i, result := range report.Status.Paths {
		switch node, _ := path.Origin(result.ID); {
		case node != report.Name:
			if example == "" {
				own = slices.Clone(report.Status.Paths[:i]) // the report in full keeps it
			}
			example = result.ID
		case example != "":
			own = append(own, result)
		}
	}
	if example != "" {
		report.Status.Paths = own
	}
	return example
}

// allOf reads all objects of one of Theseus' own kinds; none if the kind is not defined.
func allOf[T any](ctx context.Context, a *Actor, kind string) ([]T, error) {
	client, err := a.resource(v1alpha1.APIVersion, kind, v1alpha1.Namespace)
	if err != nil {
		return nil, ignoreNoKind(err)
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, ignoreNoKind(err)
	}
	all := make([]T, len(list.Items))
	for i := range list.Items {
		if err := decode(list.Items[i].Object, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}
