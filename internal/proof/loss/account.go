package loss

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Counts are the results of probes. On a path that should answer, Sent is the sum of Answered, Excused, Left and
// Lost. On a denied path every answer is a leak, and no answer is the expected result.
type Counts struct {
	Sent, Answered int64
	// Late are those of Answered that the sender read after their timeout, because it was stalled.
	Late int64
	// Excused were unanswered while all possible responders were stalled (Stalls).
	Excused int64
	// Left were unanswered because nodes had left the cluster (Account.Leave).
	Left int64
	// Lost were not answered and should have been. Leaked were answered and should not have been.
	Lost, Leaked int64
}

// Add adds other counts.
func (c *Counts) Add(o Counts) {
	c.Sent, c.Answered, c.Late = c.Sent+o.Sent, c.Answered+o.Answered, c.Late+o.Late
	c.Excused, c.Left = c.Excused+o.Excused, c.Left+o.Left
	c.Lost, c.Leaked = c.Lost+o.Lost, c.Leaked+o.Leaked
}

// compared is how many probes tell whether the network loses any.
func (c Counts) compared() int64 { return c.Sent - c.Excused - c.Left }

// wrong is how many probes had an unexpected result. On a path, either Lost or Leaked is 0.
func (c Counts) wrong() int64 { return c.Lost + c.Leaked }

// Account is the one count of the paths in reports. Gates, the view of a run, its status and its report all use
// it.
type Account []*PathAccount

// PathAccount has the results of one path's probes.
type PathAccount struct {
	v1alpha1.Path
	Counts
	// Gaps are those that count, oldest first; gaps whose probes are all excused are left out. Hidden counts gaps
	// that were dropped from all reports.
	Gaps   []Gap
	Hidden int64
	// Stalls are the times in which the source itself was stalled, oldest first.
	Stalls []v1alpha1.Gap
	// Results is the newest result of every counter, oldest first. A source that restarts begins a new counter. There
	// is none if the path was not measured.
	Results []v1alpha1.PathResult

	reported []time.Time // when the latest report with each of Results was written; zero if that is unknown
}

// Displaced is how many of Lost are in none of Gaps, since their gaps were dropped from all reports: it is unknown
// whether the responders were stalled.
func (p *PathAccount) Displaced() int64 {
	if p.Hidden == 0 {
		return 0
	}
	displaced := p.Lost
	for _, gap := range p.Gaps {
		displaced -= gap.Probes - gap.Excused
	}
	return max(0, displaced)
}

// Gap is a gap of an account.
type Gap struct {
	v1alpha1.Gap
	// Open is true if the gap had not ended in the newest report.
	Open bool
	// Excused is how many of its probes are excused.
	Excused int64
}

// NewAccount counts the results in reports, in the order of the paths. Results of other paths are left out. The
// reports may come in any order and overlap: the results of a path that have the same Since are one counter that
// grew, and different counters are added up. If earlier reports are given, one for each node, only later probes
// are counted; of a path that restarted since then, only the new counter. The timeout is that of the probes; 0
// means DefaultTimeout.
func NewAccount(paths []v1alpha1.Path, earlier, reports []v1alpha1.ProbeReport, timeout time.Duration) Account {
	before, counters := byPath(earlier), countersOf(reports)
	account := make(Account, len(paths))
	for i, path := range paths {
		account[i] = &PathAccount{Path: path}
		for _, c := range counters[path.ID] {
			account[i].count(before[path.ID], c)
		}
		slices.SortFunc(account[i].Gaps, func(a, b Gap) int { return a.From.Compare(b.From) })
	}
	stalls := sync.OnceValue(func() *Stalls { return account.stalls(reports, timeout) })
	for _, p := range account {
		if len(p.Gaps) > 0 {
			p.excuse(stalls())
		}
	}
	return account
}

// count adds what a counter counted after an earlier result.
func (p *PathAccount) count(before v1alpha1.PathResult, c counter) {
	last := c.results[len(c.results)-1]
	before = baseline(before, last)
	counts := between(p.Denied, before, last)
	p.Add(counts)
	gaps := united(c.results, func(r v1alpha1.PathResult) []v1alpha1.Gap { return r.Gaps })
	p.Hidden += max(0, int64(len(last.Gaps)-len(gaps))+last.Dropped-before.Dropped)
	from := before.Last
	if before.Open != nil {
		from = before.Open.From.Add(-1) // the open gap counts as a whole
	}
	for _, gap := range gaps {
		if gap.From.After(from) {
			p.Gaps = append(p.Gaps, Gap{Gap: gap})
		}
	}
	if last.Open != nil && counts.wrong() > 0 {
		p.Gaps = append(p.Gaps, Gap{Gap: *last.Open, Open: true})
	}
	p.Stalls = append(p.Stalls, united(c.results, func(r v1alpha1.PathResult) []v1alpha1.Gap { return r.Stalls })...)
	p.Results, p.reported = append(p.Results, last), append(p.reported, c.reported)
}

// excuse subtracts from the losses the probes whose possible responders were all stalled.
func (p *PathAccount) excuse(stalls *Stalls) {
	var excused int64
	for i := range p.Gaps {
		p.Gaps[i].Excused = stalls.Excused(p.Path, p.Gaps[i].Gap)
		excused += p.Gaps[i].Excused
	}
	p.Gaps = slices.DeleteFunc(p.Gaps, func(gap Gap) bool { return gap.Excused == gap.Probes })
	p.Excused = min(excused, p.Lost) // a gap that was open in the earlier report has probes that are not counted here
	p.Lost -= p.Excused
}

// Rebinds is how long a path with one flow through a Service may be silent because a node leaves. The flow is bound to
// a pod: a TCP connection ends with its pod, and a UDP flow goes to it until it has ended and kube-proxy has noticed,
// however gracefully the pod ends. New connections through a Service lose nothing if the pod ends before its node.
const Rebinds = 3 * time.Second

// Drains is for how long after a node began to leave such a silence is put down to it.
const Drains = 10 * time.Minute

// Leave takes out of the losses what was lost on the paths from and to nodes since they left the cluster, and on each
// path with one flow through a Service one short gap for each of these nodes, soon after it began to leave. A gap that
// began before stays a loss as a whole, and so does what else nodes lose on their way to a Service.
func (a Account) Leave(left map[string]time.Time) {
	ends := slices.SortedFunc(maps.Values(left), time.Time.Compare)
	for _, p := range a {
		since, gone := leftAt(p.Path, left)
		switch bound := p.Target.Node == "" && (p.Protocol == v1alpha1.UDP || p.Protocol == v1alpha1.TCP); {
		case p.Denied:
		case gone:
			p.leave(func(gap Gap) bool { return !gap.From.Before(since) })
		case bound:
			next := 0
			p.leave(func(gap Gap) bool {
				for next < len(ends) && gap.From.After(ends[next].Add(Drains)) {
					next++
				}
				if next == len(ends) || gap.From.Before(ends[next]) || gap.Millis > millis(Rebinds) {
					return false
				}
				next++
				return true
			})
		}
	}
}

// leave takes gaps out of the losses. It asks for each, oldest first.
func (p *PathAccount) leave(takes func(Gap) bool) {
	kept := p.Gaps[:0]
	for _, gap := range p.Gaps {
		if !takes(gap) {
			kept = append(kept, gap)
			continue
		}
		p.Left += gap.Probes - gap.Excused
	}
	p.Gaps, p.Left = kept, min(p.Left, p.Lost)
	p.Lost -= p.Left
}

// leftAt is when the first of the ends of a path left; gone is false if none did.
func leftAt(path v1alpha1.Path, left map[string]time.Time) (since time.Time, gone bool) {
	for _, node := range []string{path.Source.Node, path.Target.Node} {
		if at, is := left[node]; is && (!gone || at.Before(since)) {
			since, gone = at, true
		}
	}
	return since, gone
}

// stalls collects the stalls of the processes that answer, from the reports of the paths on which they send. A path
// that was not measured says nothing about its source.
func (a Account) stalls(reports []v1alpha1.ProbeReport, timeout time.Duration) *Stalls {
	stalls := NewStalls(timeout)
	for _, report := range reports {
		stalls.Gone(report.Name, report.Status.Parts)
	}
	for _, p := range a {
		for i, result := range p.Results {
			stalls.Add(p.Path, result.Since, later(result.Last, p.reported[i]), p.Stalls)
		}
	}
	return stalls
}

// restarted reports whether the source of a result had lost its earlier counts. Its clock may have been set back
// meanwhile.
func restarted(before, after v1alpha1.PathResult) bool {
	return before.Sent > 0 && (after.Sent < before.Sent || !after.Since.Equal(before.Since))
}

// baseline is the result from which a later one of its path counts: an earlier one, or nothing if the source
// restarted.
func baseline(before, after v1alpha1.PathResult) v1alpha1.PathResult {
	if restarted(before, after) {
		return v1alpha1.PathResult{}
	}
	return before
}

// between counts the probes between two results of one counter, before any is excused.
func between(denied bool, before, after v1alpha1.PathResult) Counts {
	c := Counts{Sent: after.Sent - before.Sent, Answered: after.Answered - before.Answered,
		Late: after.Excused - before.Excused}
	if denied {
		c.Leaked = c.Answered
	} else {
		c.Lost = c.Sent - c.Answered
	}
	return c
}
