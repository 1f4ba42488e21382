package loss

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// maxBad bounds the paths that a verdict names.
const maxBad = 10

// Limits is what a gate lets pass. The zero value lets nothing pass: not one probe may be lost or leak.
type Limits struct {
	// MaxLost is how many probes may be lost over all paths. Leaks are never allowed.
	MaxLost int64
	// MaxGap is the longest gap allowed on any path within MaxLost; 0 means that length does not matter.
	// It excuses no loss: probes lost in a short gap count against MaxLost too.
	MaxGap time.Duration
	// Changed, where it is not empty, are the nodes with the change: MaxGap then bounds the silence on their paths
	// alone, counted in intervals between lost probes, as a sender that does not run for a while hears nothing either.
	Changed []string
	// Bake is how long every source must have measured since the gate was asked, on its own clock.
	Bake time.Duration
	// Whole demands that every path was measured without a break: that no prober restarted, or was stalled for more
	// than longestHole.
	Whole bool
	// Timeout is the probes' timeout; evidence about denied paths is that much older than its report.
	// 0 means DefaultTimeout.
	Timeout time.Duration
	// Quiet is how long a node may be silent of which no fresh report is demanded (Evidence.Others), and how long ago
	// its paths may have been measured.
	Quiet time.Duration
}

// watch is how long a source must have measured: as long as asked, and until every probe that was in flight
// when the gate was asked is decided.
func (l Limits) watch() time.Duration { return max(l.Bake, l.Timeout+l.Timeout/4) }

// Evidence is what a gate is judged on.
type Evidence struct {
	// Generations are those of the nodes' plans; Paths are all their paths.
	Generations map[string]int64
	Paths       []v1alpha1.Path
	// Since are the reports from which losses count, such as those at the end of the previous gate; nil
	// means Asked. Asked are the reports at hand when the gate was asked: only what is newer is fresh.
	Since, Asked []v1alpha1.ProbeReport
	// Now are the latest reports.
	Now []v1alpha1.ProbeReport
	// Every is how often a node reports. It tells what may explain a loss within News, which is no longer; 0 means
	// Every.
	Every, News time.Duration
	// Left are nodes that have left the cluster, since when. What their paths lose later does not count
	// (Account.Leave), and nothing fresh is asked of them. Their last results must still be there.
	Left map[string]time.Time
	// Others are the nodes of which no fresh report is demanded, and how long ago each was heard of. What their latest
	// reports say counts all the same, and one that is silent for longer than Limits.Quiet is missing evidence. If
	// nil, fresh reports are demanded of all nodes.
	Others map[string]time.Duration
	// First is since when each node has measured for the gate, by its own clock: since it saw the gate's question, or
	// since its first fresh report. The report before may be much older than the gate. If nil, a node has measured
	// since the report that was at hand (Asked).
	First map[string]time.Time
	// Enough is when the first report of each node was made by which it had measured for as long as the gate watches,
	// of nodes that are not in First. If it is not known, the latest report counts, and a probe may be as old as the
	// timeout.
	Enough map[string]time.Time
	// Answered has the nodes whose report of this number was counted after they had measured for as long as the gate
	// watches, from when they saw its question. That and all later reports are fresh.
	Answered map[string]int64
}

// sources are the nodes that must report.
func (e Evidence) sources() []string {
	return slices.DeleteFunc(Sources(e.Paths), func(node string) bool {
		_, left := e.Left[node]
		return left
	})
}

// Verdict is a gate's verdict on the evidence.
type Verdict struct {
	Pass bool
	// Waiting is true if there is not enough fresh evidence yet and nothing else is wrong: asking again
	// later may pass. A gate that runs out of time while waiting has failed.
	Waiting bool
	// Reason is one sentence in plain words, with the figures.
	Reason string
	// Paths is how many paths were judged, Counts the results of their probes, and LongestGap the longest gap or leak.
	Paths int
	Counts
	LongestGap time.Duration
	// Displaced are lost probes that are not in Lost: with them, more were lost than is allowed, but they are in gaps
	// that no report holds, so it is not known whether they are excused. Then the gate does not pass.
	Displaced int64
	// Restarted counts paths whose prober restarted: its losses since are known, but not those of the moment before.
	Restarted int
	// Bad names the worst paths, at most ten, with their figures.
	Bad []string
}

// delta is the result of one path since a report, and how far it can be trusted.
type delta struct {
	*PathAccount
	longest float64 // ms
	silence float64 // ms between the first and the last probe of the longest run of lost probes
	unknown string  // why the evidence cannot be trusted; empty if it can
	recount bool    // its prober restarted, and with it the count
	hole    float64 // ms, the longest time in which its prober was stalled
	holes   float64 // ms, the sum of such times, without the short ones
	most    float64 // ms, how much holes may be
	more    bool    // its report may lack such times
	pending int64   // wrong probes that may yet turn out to be excused
	missing string  // the evidence that is still missing; empty if none is
}

// Judge says whether the evidence meets the limits. From every node that is a source of a path, it demands a
// report of the plan's generation, and that it answers the gate's question or is the second since the gate was
// asked; on every path, it demands enough new probes, and an answer if the path should answer. Of the Others, it
// demands only that none is silent, and takes their latest reports. Without data, no gate passes.
func Judge(limits Limits, evidence Evidence) Verdict {
	if limits.Timeout <= 0 {
		limits.Timeout = DefaultTimeout
	}
	if evidence.Since == nil {
		evidence.Since = evidence.Asked
	}
	verdict := Verdict{Paths: len(evidence.Paths)}
	if len(evidence.Paths) == 0 {
		verdict.Waiting, verdict.Reason = true, "no paths are measured: no data is no pass"
		return verdict
	}
	sources := evidence.sources()
	if len(sources) == 0 {
		verdict.Waiting, verdict.Reason = true, "every node that measured has left the cluster: no data is no pass"
		return verdict
	}
	stale := staleNodes(limits, evidence, sources)
	deltas := compare(limits, evidence)
	sum(&verdict, deltas)
	verdict.displace(limits, deltas)
	if failure := failure(limits, &verdict, deltas); failure != "" {
		verdict.Reason = failure
		verdict.Waiting = verdict.Leaked == 0 && (evidence.behind(limits, deltas) || explainable(limits, deltas))
		return verdict
	}
	if missing := missing(stale, deltas); missing != "" {
		verdict.Waiting, verdict.Reason = true, missing
		return verdict
	}
	verdict.Reason = pass(verdict)
	if holes := holes(deltas); limits.Whole && holes != "" {
		verdict.Reason = holes + "; apart from that " + verdict.Reason
		return verdict
	}
	verdict.Pass = true
	return verdict
}

// longestHole is how long a prober may be stalled where paths must be measured without a break. A busy machine stalls
// every process for a moment, and a change of the network that is shorter than this is still seen by other paths. All
// stalls of shortHole or more together may last longestHole, and one part in holesOf of the time that was measured.
const (
	longestHole = 5 * time.Second
	shortHole   = time.Second
	holesOf     = 1000
)

// stalled measures the times in which the prober of a path did not run since an earlier result, as far as they began
// before the end.
func (d *delta) stalled(before, after v1alpha1.PathResult, end time.Time) {
	since := before.Last
	if since.IsZero() {
		since = after.Since
	}
	d.most = millis(longestHole + after.Last.Sub(since)/holesOf)
	kept, shortest := 0, 0.0
	for _, stall := range d.Stalls {
		if kept++; kept == 1 || stall.Millis < shortest {
			shortest = stall.Millis
		}
		if !stall.From.After(before.Last) || stall.From.After(end) {
			continue
		}
		d.hole = max(d.hole, stall.Millis)
		if stall.Millis >= millis(shortHole) {
			d.holes += stall.Millis
		}
	}
	d.more = kept >= DefaultMaxGaps && shortest >= millis(shortHole) // those that were dropped may be as long
}

// holes names the longest time in which a path was not measured, or the longest sum of such times, and counts such
// paths; empty if there is none.
func holes(deltas []delta) string {
	var longest, torn delta
	paths, restarts, often := 0, 0, 0
	for _, d := range deltas {
		switch {
		case d.recount:
			restarts++
		case d.hole > millis(longestHole):
			paths++
			if d.hole > longest.hole {
				longest = d
			}
		case d.holes > d.most || d.more:
			often++
			if d.holes > torn.holes {
				torn = d
			}
		}
	}
	switch {
	case restarts > 0:
		return fmt.Sprintf("a prober restarted, so %s not measured for a moment",
			plural(restarts, "path")+was(restarts))
	case paths > 0:
		return fmt.Sprintf("%s not measured for up to %s, such as %s, since a prober did not run",
			plural(paths, "path")+was(paths), ms(longest.hole), longest.ID)
	case often > 0:
		least := ""
		if torn.more {
			least = "at least "
		}
		return fmt.Sprintf("%s not measured for %s%s in all, such as %s, since a prober did not run again and again",
			plural(often, "path")+was(often), least, ms(torn.holes), torn.ID)
	}
	return ""
}

func was(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

// staleNodes lists the sources without a fresh report, each with the reason.
func staleNodes(limits Limits, evidence Evidence, sources []string) []string {
	asked, now := byNode(evidence.Asked), byNode(evidence.Now)
	var stale []string
	for _, node := range sources {
		report, ok := now[node]
		before, had := asked[node]
		silent, other := evidence.Others[node]
		from := before.At
		if first, known := evidence.First[node]; known {
			from = first
		}
		watched := report.At.Sub(from)
		answered, has := evidence.Answered[node]
		switch {
		case !ok:
			stale = append(stale, node+" has not reported")
		case report.Generation != evidence.Generations[node]:
			stale = append(stale, fmt.Sprintf("%s reports on plan %d instead of %d",
				node, report.Generation, evidence.Generations[node]))
		case other:
			switch {
			case silent == longAgo:
				stale = append(stale, node+" was not seen to report yet")
			case silent > limits.Quiet:
				stale = append(stale, fmt.Sprintf("%s has not reported for %s", node, silent.Round(time.Second)))
			}
		case has && report.Seq >= answered:
		case report.Seq-before.Seq < 2:
			stale = append(stale, fmt.Sprintf("%s has published %d of 2 fresh reports",
				node, max(report.Seq-before.Seq, 0)))
		case had && watched < limits.watch():
			stale = append(stale,
				fmt.Sprintf("%s has measured for %s of %s", node, watched.Round(100*time.Millisecond), limits.watch()))
		}
	}
	return stale
}

// Sources are the nodes that send on any of the paths, sorted.
func Sources(paths []v1alpha1.Path) []string {
	seen := map[string]bool{}
	var nodes []string
	for _, path := range paths {
		if !seen[path.Source.Node] {
			seen[path.Source.Node] = true
			nodes = append(nodes, path.Source.Node)
		}
	}
	sort.Strings(nodes)
	return nodes
}

// compare computes the result of each path: losses since Since, freshness since Asked.
func compare(limits Limits, evidence Evidence) []delta {
	since, asked, now := byPath(evidence.Since), byPath(evidence.Asked), byPath(evidence.Now)
	reported := byNode(evidence.Now)
	probers := restartedProbers(evidence)
	var deltas []delta
	account := NewAccount(evidence.Paths, evidence.Since, evidence.Now, limits.Timeout)
	account.Leave(evidence.Left)
	for _, path := range account {
		d := delta{PathAccount: path, missing: path.ID + " has no result"}
		before := since[path.ID]
		after, ok := now[path.ID]
		left, gone := leftAt(path.Path, evidence.Left)
		// of a node that has left, nothing fresh is asked, but until then it was measured like any other
		measured := !gone || left.After(before.Last)
		switch {
		case !ok && gone && (before.Sent == 0 || !measured):
			d.missing = ""
		case ok && gone:
			d.missing = ""
			d.stalled(before, after, left)
		case ok:
			d.missing = ""
			if _, other := evidence.Others[path.Source.Node]; !other {
				d.missing = wanting(limits, path.Path, asked[path.ID], after, evidence.First[path.Source.Node],
					evidence.Enough[path.Source.Node], reported[path.Source.Node].At)
			} else {
				d.missing = idle(limits, path.Path, after, reported[path.Source.Node].At)
			}
			d.stalled(before, after, after.Last)
		}
		if ok && measured {
			d.doubt(limits.MaxGap, before, after, probers[process(path.Source)])
		}
		d.measure(after)
		deltas = append(deltas, d)
	}
	return deltas
}

// writes is how old a prober's counts are at most when its agent reports them, unless it hangs: it writes them twice as
// often.
const writes = time.Second

// wanting names the evidence that a path lacks since the gate was asked; empty if it has enough. The last probe must be
// of the end of the time for which its node was watched, as far as that is decided by then: a prober may hang while its
// agent reports. That moment does not move, so a node that has enough evidence keeps it, and a slow one gets it later.
//
// If it is known since when the node has measured for the gate, its counts are as new. The last probe may be older by
// the timeout, until it is decided, and by the path's interval, twice if the sender is late.
//
// In a small cluster no question is asked, and the time ends with the first report that is new enough for the gate. An
// answer comes at once, so a probe is only as old as the timeout if there must be none, or if it may be lost.
func wanting(limits Limits, path v1alpha1.Path, asked, after v1alpha1.PathResult,
	first, enough, reported time.Time) string {
	fresh, need := between(path.Denied, baseline(asked, after), after), int64(1)
	if path.IntervalMillis > 0 {
		need = max(need, limits.Bake.Milliseconds()/int64(2*path.IntervalMillis))
	}
	if fresh.Sent < need {
		return fmt.Sprintf("%s sent %d of at least %d new probes", path.ID, fresh.Sent, need)
	}
	if !path.Denied && fresh.Answered == 0 {
		return path.ID + " got no answer at all"
	}
	late := time.Duration(2*path.IntervalMillis+lastStep) * time.Millisecond
	end, lag := enough, late+writes
	if path.Denied || limits.MaxLost > 0 || enough.IsZero() {
		lag += limits.Timeout
	}
	if !first.IsZero() {
		end, lag = first.Add(limits.watch()), late+limits.Timeout
	}
	if end.IsZero() || reported.Before(end) {
		end = reported
	}
	if after.Last.Before(end.Add(-lag)) {
		return path.ID + " was last measured at " + after.Last.UTC().Format("15:04:05") + ", too early for the gate"
	}
	return ""
}

// idle says that a path of which nothing fresh is demanded was not measured for longer than its node may be silent:
// its prober may hang while the node's agent reports.
func idle(limits Limits, path v1alpha1.Path, after v1alpha1.PathResult, reported time.Time) string {
	lag := reported.Sub(after.Last)
	if lag <= min(limits.Quiet, longestIdle)+limits.Timeout+time.Duration(path.IntervalMillis)*time.Millisecond {
		return ""
	}
	return path.ID + " was last measured at " + after.Last.UTC().Format("15:04:05")
}

// longestIdle bounds how long a prober may not have measured when its agent reports, however seldom it does.
const longestIdle = 30 * time.Second

// doubt sets unknown if the counts between two results cannot be trusted. Gaps that were dropped from a result are
// shorter than those that were kept.
func (d *delta) doubt(maxGap time.Duration, before, after v1alpha1.PathResult, known bool) {
	switch {
	case !restarted(before, after):
	case known && (after.Sent == 0 || after.Since.After(before.Last)):
		d.recount = true
	default:
		d.unknown = d.ID + " restarted its count at " + after.Since.UTC().Format("15:04:05") +
			": earlier losses are unknown"
	}
	allowed := func(gap v1alpha1.Gap) bool { return maxGap == 0 || gap.Millis <= millis(maxGap) }
	if d.Hidden > 0 && !slices.ContainsFunc(after.Gaps, allowed) {
		d.unknown = fmt.Sprintf("%s had %d more gaps than its report holds", d.ID, d.Hidden)
	}
}

// measure takes the lengths of the gaps, and counts lost probes that may yet turn out to be excused.
func (d *delta) measure(after v1alpha1.PathResult) {
	for _, gap := range d.Gaps {
		d.longest = max(d.longest, gap.Millis)
		d.silence = max(d.silence, float64((gap.Probes-1)*int64(d.IntervalMillis)))
		if d.Second != "" && !d.Denied && gap.pending(after.Last) {
			d.pending += gap.Probes - gap.Excused
		}
	}
}

// A gap of a path with a second responder is not judged for the time undecided, in which the second responder may
// answer. If it answered, the gap is not judged until settles after its end: by then the node of an absent prober has
// reported the absence.
const (
	undecided = 3 * maxSilence / 2
	settles   = 5 * time.Second
)

// pending reports whether a gap is too recent to be judged. last is the time of the last probe.
func (g Gap) pending(last time.Time) bool {
	if g.Open {
		return seconded(g.Second) || g.Millis < millis(undecided)
	}
	return seconded(g.Second) && last.Sub(g.From.Add(time.Duration(g.Millis*float64(time.Millisecond)))) < settles
}

// explainable reports whether losses beyond the limits may yet turn out to be those of absent probers.
func explainable(limits Limits, deltas []delta) bool {
	lost, hope := int64(0), false
	var others []delta
	for _, d := range deltas {
		switch {
		case d.unknown != "":
			return false
		case d.pending > 0:
			hope = true
			lost += max(0, d.wrong()-d.pending)
		case !d.Denied:
			lost += d.Lost
			others = append(others, d)
		}
	}
	return hope && lost <= limits.MaxLost && (limits.MaxGap == 0 || limits.longestLoss(others) <= limits.MaxGap)
}

// restartedProbers are the probers that restarted between two reports, as their nodes report.
func restartedProbers(evidence Evidence) map[v1alpha1.Endpoint]bool {
	before, probers := byNode(evidence.Since), map[v1alpha1.Endpoint]bool{}
	for node, now := range byNode(evidence.Now) {
		for _, part := range now.Parts {
			i := slices.IndexFunc(before[node].Parts, func(former v1alpha1.Part) bool {
				return former.Name == part.Name
			})
			if i >= 0 && !part.Since.Equal(before[node].Parts[i].Since) {
				probers[v1alpha1.Endpoint{Node: node, Network: part.Name}] = true
			}
		}
	}
	return probers
}

// sum adds the paths up and names the worst.
func sum(verdict *Verdict, deltas []delta) {
	var bad []delta
	var all Sum
	for _, d := range deltas {
		all.Add(d.PathAccount)
		if d.recount {
			verdict.Restarted++
		}
		if d.wrong() > 0 {
			bad = append(bad, d)
		}
	}
	verdict.Counts = all.Counts
	verdict.LongestGap = time.Duration(max(all.LongestMillis, all.LongestLeakMillis) * float64(time.Millisecond))
	sort.SliceStable(bad, func(i, j int) bool {
		if bad[i].Denied != bad[j].Denied {
			return bad[i].Denied
		}
		return bad[i].wrong() > bad[j].wrong()
	})
	for _, d := range bad[:min(len(bad), maxBad)] {
		verdict.Bad = append(verdict.Bad, d.String())
	}
}

// displace takes out of Lost what alone is beyond the limit, and may be excused.
func (v *Verdict) displace(limits Limits, deltas []delta) {
	var displaced int64
	for _, d := range deltas {
		displaced += d.Displaced()
	}
	if v.Lost > limits.MaxLost && v.Lost-displaced <= limits.MaxLost {
		v.Displaced = displaced
		v.Lost -= displaced
	}
}

func (d delta) String() string {
	what := "lost"
	if d.Denied {
		what = "leaked"
	}
	return fmt.Sprintf("%s: %s of %s %s, longest gap %s", d.ID, count(d.wrong()), count(d.Sent), what, ms(d.longest))
}

// failure is why the gate fails, whatever evidence comes later; empty if it does not.
func failure(limits Limits, verdict *Verdict, deltas []delta) string {
	var reasons []string
	if verdict.Leaked > 0 {
		reasons = append(reasons, wrongs(deltas, true))
	}
	tooLong := limits.MaxGap > 0 && verdict.Lost > 0 && limits.longestLoss(deltas) > limits.MaxGap
	if verdict.Lost > limits.MaxLost || tooLong {
		reason := wrongs(deltas, false)
		if verdict.Lost <= limits.MaxLost {
			reason += fmt.Sprintf("; at most %s is allowed", ms(float64(limits.MaxGap)/float64(time.Millisecond)))
		} else if limits.MaxLost > 0 {
			reason += "; at most " + count(limits.MaxLost) + " may be lost"
		}
		reasons = append(reasons, reason)
	}
	if verdict.Displaced > 0 {
		reasons = append(reasons, fmt.Sprintf("%s lost probes are in gaps that the reports do not hold, as they had "+
			"too many: it is not known whether their responders were stalled",
			count(verdict.Displaced)))
	}
	for _, d := range deltas {
		if d.unknown != "" {
			reasons = append(reasons, d.unknown)
			verdict.Bad = append(verdict.Bad, d.unknown)
			break
		}
	}
	verdict.Bad = verdict.Bad[:min(len(verdict.Bad), maxBad)]
	return strings.Join(reasons, "; ")
}

func (l Limits) longestLoss(deltas []delta) time.Duration {
	longest, turns := 0.0, turnsOf(l.Changed)
	for _, d := range deltas {
		switch {
		case d.Denied:
		case len(l.Changed) == 0:
			longest = max(longest, d.longest)
		case turns[d.Source.Node]+turns[d.Target.Node] > 0:
			longest = max(longest, d.silence)
		}
	}
	return time.Duration(longest * float64(time.Millisecond))
}

// wrongs is the sentence about the probes that were lost, or that leaked.
func wrongs(deltas []delta, leaks bool) string {
	var sent, wrong int64
	var worst delta
	paths := 0
	for _, d := range deltas {
		if d.Denied != leaks {
			continue
		}
		sent += d.Sent
		wrong += d.wrong()
		if d.wrong() > 0 {
			paths++
		}
		if d.longest > worst.longest || worst.PathAccount == nil && d.wrong() > 0 {
			worst = d
		}
	}
	if leaks {
		return fmt.Sprintf("%s of %s probes got through on %s that policy must block, longest for %s on %s",
			count(wrong), count(sent), plural(paths, "path"), ms(worst.longest), worst.ID)
	}
	return fmt.Sprintf("%s of %s probes lost on %s%s, longest gap %s on %s",
		count(wrong), count(sent), plural(paths, "path"), suspect(deltas), ms(worst.longest), worst.ID)
}

// suspect names the node that every path with losses between two nodes begins or ends on, and counts these; empty if
// there is no such node, or more than one.
func suspect(deltas []delta) string {
	paths, on := 0, map[string]int{}
	for _, d := range deltas {
		if from, to := d.Source.Node, d.Target.Node; !d.Denied && d.wrong() > 0 &&
			from != "" && to != "" && from != to {
			paths++
			on[from]++
			on[to]++
		}
	}
	var all []string
	for node, count := range on {
		if count == paths {
			all = append(all, node)
		}
	}
	if paths < 2 || len(all) != 1 {
		return ""
	}
	return fmt.Sprintf(", %d of them from or to %s", paths, all[0])
}

// missing names the evidence that is still missing; empty if none is.
func missing(stale []string, deltas []delta) string {
	if len(stale) > 0 {
		return "no fresh evidence: " + stale[0] + more(len(stale)-1, "node")
	}
	var paths []string
	for _, d := range deltas {
		if d.missing != "" {
			paths = append(paths, d.missing)
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return "not enough evidence: " + paths[0] + more(len(paths)-1, "path")
}

func pass(verdict Verdict) string {
	text := fmt.Sprintf("%s probes on %s, ", count(verdict.Sent), plural(verdict.Paths, "path"))
	if verdict.Lost == 0 {
		text += "none lost"
	} else {
		text += fmt.Sprintf("%s lost, which is allowed, longest gap %s",
			count(verdict.Lost), ms(float64(verdict.LongestGap)/float64(time.Millisecond)))
	}
	if verdict.Excused > 0 {
		text += fmt.Sprintf("; %s more were unanswered while all possible responders were stalled (not counted)",
			count(verdict.Excused))
	}
	if verdict.Left > 0 {
		text += fmt.Sprintf("; %s more were lost because nodes left the cluster (not counted)",
			count(verdict.Left))
	}
	if verdict.Restarted > 0 {
		text += fmt.Sprintf("; a prober restarted, and with it the count of %s", plural(verdict.Restarted, "path"))
	}
	return text
}

// behind reports whether the losses are beyond the limits only because of gaps that are newer than the last report of
// some node that may know their reason, or hardly older. It may have been stalled. So the gate waits for its next
// report, but not if that is late by more than twice the probes' timeout. Earlier gaps would be explained by now: of
// many nodes, there is always one that has not reported for a moment. The nodes at the ends of a path may know the
// reason; behind a Service, any node may have answered.
func (e Evidence) behind(limits Limits, deltas []delta) bool {
	ends, all := map[string]bool{}, false
	for _, d := range deltas {
		if d.wrong() > 0 || d.unknown != "" {
			ends[d.Source.Node], ends[d.Target.Node] = true, true
			all = all || d.Target.Node == "" || d.Class == nodePort
		}
	}
	now := byNode(e.Now)
	var latest time.Time
	for _, report := range now {
		latest = later(latest, report.At)
	}
	told := latest
	for _, node := range e.sources() {
		at := now[node].At
		if lag := latest.Sub(at); (all || ends[node]) && lag > limits.Timeout/2 && lag < e.Every+2*limits.Timeout {
			silent := latest.Add(-cmp.Or(e.News, e.Every) - 2*limits.Timeout) // it would have told what was before
			told = earlier(told, later(at, silent).Add(-limits.Timeout))
		}
	}
	if told.Equal(latest) {
		return false
	}
	lost, settled := int64(0), make([]delta, 0, len(deltas))
	for _, d := range deltas {
		switch {
		case d.unknown != "":
			return false
		case d.Denied:
			continue
		}
		account := *d.PathAccount
		account.Gaps = nil
		for _, gap := range d.Gaps {
			if gap.From.Before(told) {
				account.Gaps = append(account.Gaps, gap)
			} else {
				account.Lost -= gap.Probes - gap.Excused
			}
		}
		one := delta{PathAccount: &account}
		one.measure(v1alpha1.PathResult{})
		lost += max(0, account.Lost)
		settled = append(settled, one)
	}
	return lost <= limits.MaxLost && (limits.MaxGap == 0 || limits.longestLoss(settled) <= limits.MaxGap)
}

func byNode(reports []v1alpha1.ProbeReport) map[string]v1alpha1.ProbeReportStatus {
	nodes := make(map[string]v1alpha1.ProbeReportStatus, len(reports))
	for _, report := range reports {
		nodes[report.Name] = report.Status
	}
	return nodes
}

func byPath(reports []v1alpha1.ProbeReport) map[string]v1alpha1.PathResult {
	paths := map[string]v1alpha1.PathResult{}
	for _, report := range reports {
		for _, result := range report.Status.Paths {
			paths[result.ID] = result
		}
	}
	return paths
}
