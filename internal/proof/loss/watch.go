package loss

import (
	"maps"
	"math"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Watch judges one gate at every look, as Judge does. While reports are still missing and nothing is wrong, which is
// nearly always, a look costs as much as the reports that have changed since the look before.
type Watch struct {
	limits   Limits
	evidence Evidence
	sources  []string // that must report
	paths    map[string]watched
	clean    map[string]string                     // by node, the version of its last report, if nothing is wrong in it
	asked    map[string]v1alpha1.ProbeReportStatus // by node, while first fresh reports are kept
	numbers  []int64                               // of the gate's questions
}

// watched is a path of a gate, and its result from which the gate counts.
type watched struct {
	denied bool
	since  v1alpha1.PathResult
}

// NewWatch is a gate with these limits. Now is left out of the evidence: looks have it.
func NewWatch(limits Limits, evidence Evidence) *Watch {
	if limits.Timeout <= 0 {
		limits.Timeout = DefaultTimeout
	}
	if evidence.Since == nil {
		evidence.Since = evidence.Asked
	}
	w := &Watch{limits: limits, evidence: evidence, sources: evidence.sources(),
		paths: make(map[string]watched, len(evidence.Paths)), clean: map[string]string{}}
	since := byPath(evidence.Since)
	for _, path := range evidence.Paths {
		before := since[path.ID]
		w.paths[path.ID] = watched{path.Denied, v1alpha1.PathResult{Sent: before.Sent, Answered: before.Answered,
			Since: before.Since, Dropped: before.Dropped}}
	}
	return w
}

// Concern demands fresh reports only of some nodes, which are told to report at once; nil means of all. It may be
// called before the first look only.
func (w *Watch) Concern(nodes map[string]bool) {
	w.evidence.First, w.evidence.Answered = map[string]time.Time{}, map[string]int64{}
	if nodes == nil {
		return
	}
	w.evidence.Others = map[string]time.Duration{}
	for _, node := range w.sources {
		if !nodes[node] {
			w.evidence.Others[node] = longAgo
		}
	}
}

// Question adds the number of a question that nodes were asked for this gate: reports that answer it are fresh.
func (w *Watch) Question(number int64) { w.numbers = append(w.numbers, number) }

// Watches is how long each node must measure for the gate.
func (w *Watch) Watches() time.Duration { return w.limits.watch() }

// longAgo is longer ago than any gate waits.
const longAgo = time.Duration(math.MaxInt64)

// Hear takes over when nodes were heard of, at a time: of those of which no fresh report is demanded.
func (w *Watch) Hear(heard *Hearing, now time.Time) {
	for node := range w.evidence.Others {
		w.evidence.Others[node] = heard.Silent(node, now)
	}
}

// first keeps which nodes have answered the gate's question, and since when each measures for it, by the plan that the
// gate judges: since it saw the question; or since its first report that was made after the gate was asked, if it does
// not know of questions. The one before may have been on its way.
func (w *Watch) first(now []v1alpha1.ProbeReport) {
	if w.asked == nil {
		w.asked = byNode(w.evidence.Asked)
	}
	if w.evidence.First == nil {
		w.enough(now)
		return
	}
	for i := range now {
		node, status := now[i].Name, &now[i].Status
		if _, answered := w.evidence.Answered[node]; answered || status.Generation != w.evidence.Generations[node] {
			continue
		}
		for _, number := range w.numbers {
			answer, ok := answerTo(&now[i], number)
			if !ok {
				continue
			}
			whole := answer.Measured >= w.limits.watch()
			if _, known := w.evidence.First[node]; !known || whole {
				w.evidence.First[node] = answer.Seen
			}
			if whole {
				w.evidence.Answered[node] = status.Seq
			}
		}
		if _, known := w.evidence.First[node]; !known && status.Seq > w.asked[node].Seq+1 {
			w.evidence.First[node] = status.At
		}
	}
}

// enough keeps when each node had measured for long enough, where no question is asked.
func (w *Watch) enough(now []v1alpha1.ProbeReport) {
	if w.evidence.Enough == nil {
		w.evidence.Enough = map[string]time.Time{}
	}
	for i := range now {
		node, status := now[i].Name, &now[i].Status
		before := w.asked[node]
		if _, known := w.evidence.Enough[node]; !known && status.Generation == w.evidence.Generations[node] &&
			status.Seq >= before.Seq+2 && status.At.Sub(before.At) >= w.limits.watch() {
			w.evidence.Enough[node] = status.At
		}
	}
}

// Leave says which nodes have left the cluster by now (Evidence.Left).
func (w *Watch) Leave(left map[string]time.Time) {
	if !maps.Equal(w.evidence.Left, left) {
		w.evidence.Left = left
		w.sources = w.evidence.sources()
	}
}

// Judge judges the latest reports.
func (w *Watch) Judge(now []v1alpha1.ProbeReport) Verdict {
	w.evidence.Now = now
	w.first(now)
	return Judge(w.limits, w.evidence)
}

// Look judges the latest reports too, but it leaves the counts out of a verdict that waits for reports while nothing is
// wrong.
func (w *Watch) Look(now []v1alpha1.ProbeReport) Verdict {
	w.evidence.Now = now
	w.first(now)
	for i := range now {
		if !w.well(&now[i]) {
			return w.Judge(now)
		}
	}
	if len(w.sources) == 0 {
		return w.Judge(now)
	}
	if stale := staleNodes(w.limits, w.evidence, w.sources); len(stale) > 0 {
		return Verdict{Paths: len(w.evidence.Paths), Waiting: true, Reason: missing(stale, nil)}
	}
	return w.Judge(now)
}

// well reports whether nothing in a report can make the gate fail: since the gate counts, no probe was lost or leaked,
// no count began anew, and no gap was dropped.
func (w *Watch) well(report *v1alpha1.ProbeReport) bool {
	if version, known := w.clean[report.Name]; known && version == report.ResourceVersion && version != "" {
		return true
	}
	delete(w.clean, report.Name)
	for i := range report.Status.Paths {
		after := &report.Status.Paths[i]
		path, planned := w.paths[after.ID]
		if !planned {
			continue
		}
		if restarted(path.since, *after) || after.Dropped > path.since.Dropped ||
			between(path.denied, path.since, *after).wrong() != 0 {
			return false
		}
	}
	w.clean[report.Name] = report.ResourceVersion
	return true
}
