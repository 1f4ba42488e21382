package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/step"
)

// recent is how long a loss counts as present: a node tells more of it every ten seconds, or more often. Where results
// are counted less often, it is twice that time.
const recent = 15 * time.Second

// within is how long a path without new results counts as measured, and a node's sessions as known: as long as recent,
// or half as long again as a node may be silent that loses nothing.
func (b *Board) within(countEvery time.Duration) time.Duration {
	return max(recent, 2*countEvery, path.ReportEvery(len(b.plan.Cluster.Nodes))*3/2)
}

// Board makes the States of one run from what is read of it. It is not safe for several goroutines.
type Board struct {
	plan    *plan.Plan
	script  *run.Script
	records []engine.Record
	model   report.Model // of plan and journal alone
	state   engine.State
	action  string
	lines   []Line
	nodes   map[string]int // the index of a node's cell
	cells   []Node

	account  loss.Account
	sum      loss.Sum
	classes  []Class
	pace     map[string]loss.RoundTrips // of every class, at the results before
	progress map[string]*progress       // of every path
	planned  []*progress                // of the paths that must be measured now
	recent   time.Duration              // see recent
	measures time.Duration              // see within
	rebase   bool
	losing   map[string]time.Time // when a class last lost, by the clock of this machine
	lost     map[string]int64     // the losses of a class at the results before
	lastLoss time.Time            // by the nodes' clocks
	measured time.Time
	at       time.Time // of the newest State
	past     timeline
	chart    chart
	strip    Strip
	bgp      sessions
	affected affected
}

// progress is the newest counter of a path, with times of this machine's clock.
type progress struct {
	node   string // its source
	denied bool
	since  time.Time // of the nodes' clocks
	sent   int64
	first  time.Time // when it was first looked for
	grew   time.Time // when it last grew; zero if it has not since then, however many probes it had then
	// counts are the round trips of the counter, and before those when it grew the time before.
	counts, before []int64
}

func (p *progress) take(result v1alpha1.PathResult, at time.Time) {
	if result.Sent > p.sent || result.Sent > 0 && result.Since.After(p.since) {
		p.grew = at
		if !slices.Equal(p.counts, result.RTTCounts) { // a short report has none that are new
			p.before, p.counts = p.counts, result.RTTCounts
		}
		if !result.Since.Equal(p.since) { // another counter
			p.before = nil
		}
	}
	p.since, p.sent = result.Since, result.Sent
}

// About is what the board is told about a run besides its journal and its measurements.
type About struct {
	// Held is true while a process runs the migration, or if that is not known. Runner says which.
	Held   bool
	Runner string
	Asked  string
	Waits  []string
	// Unread says which results are missing; empty if none are.
	Unread string
	// Final means that the results are the last ones: the run has ended, and all that it kept was asked for.
	Final bool
	// Unseen says why what happened in the cluster is not known, or not any more; empty if it is.
	Unseen string
	// CountEvery is the time between two calls of Measure; 0 if there is no such time yet.
	CountEvery time.Duration
}

// NewBoard makes the board of a plan's run.
func NewBoard(p *plan.Plan) *Board {
	b := &Board{plan: p, script: run.NewScript(p), nodes: map[string]int{}, pace: map[string]loss.RoundTrips{},
		progress: map[string]*progress{}, recent: recent, losing: map[string]time.Time{}, lost: map[string]int64{},
		state: engine.State{Phase: engine.PhaseNew}}
	b.measures = b.within(0)
	for _, wave := range p.Waves {
		for _, name := range wave.Nodes {
			b.cell(name, wave.Name)
		}
	}
	b.model = report.Build(report.Input{Plan: p})
	return b
}

func (b *Board) cell(name, wave string) *Node {
	i, known := b.nodes[name]
	if !known {
		i = len(b.cells)
		b.nodes[name] = i
		b.cells = append(b.cells, Node{Name: name, Wave: wave, Mark: ToDo})
	}
	return &b.cells[i]
}

// Record takes new records, and the state after them.
func (b *Board) Record(state engine.State, records ...engine.Record) {
	b.script.Learn(records)
	for _, r := range records {
		b.action = ""
		if r.Event == engine.Intended {
			b.action = b.script.Action(r)
		}
		if line, ok := b.lineOf(r); ok {
			b.lines = append(b.lines, line)
			b.past.record(b.script, r, line)
		}
		if r.Event == engine.StepDone {
			b.past.ended(b.script, r)
		}
	}
	b.lines = slices.Clone(newest(b.lines)) // earlier States keep theirs
	b.records, b.state = append(b.records, records...), state
	b.model = report.Build(report.Input{Plan: b.plan, Records: b.records})
	if b.chart.begin.IsZero() && len(b.records) > 0 {
		b.chart.begin = b.records[0].At
	}
	gate, measures := b.pending()
	b.cells = slices.Clone(b.cells)
	for _, node := range b.model.Nodes {
		if node.Wave == "" {
			continue
		}
		mark := markOf(node.State)
		if mark == Moving && measures && slices.Contains(gate.Nodes, node.Name) {
			mark = Watched
		}
		b.cell(node.Name, node.Wave).Mark = mark
	}
}

// lineOf describes a record for people; false for one that they do not need.
func (b *Board) lineOf(r engine.Record) (Line, bool) {
	text := strings.TrimSpace(b.script.Describe(r))
	failed := r.Result == engine.ResultFailed ||
		r.Event == engine.GateAnswer && (r.Verdict == nil || !r.Verdict.Pass)
	ended := r.Event == engine.Finished && r.Result != engine.ResultDone
	return Line{Seq: r.Seq, At: r.At, Text: text, Step: r.Step, Minor: r.Event == engine.Acted && !failed,
		Bad: failed || ended || slices.Contains([]engine.Event{engine.Paused, engine.RollingBack, engine.TakingBack},
			r.Event)}, text != ""
}

// pending is the step whose gate measures.
func (b *Board) pending() (*report.Step, bool) {
	n := len(b.model.Gates)
	if n == 0 || !b.model.Gates[n-1].Pending || b.state.Over() {
		return nil, false
	}
	i := b.index(b.model.Gates[n-1].Step)
	if i < 0 {
		return nil, false
	}
	return &b.model.Steps[i], true
}

// index is that of a step of the plan; -1 if it has none with this id.
func (b *Board) index(id string) int { return b.script.Index(id) - 1 }

func markOf(s report.State) Mark {
	switch s {
	case report.StepRunning:
		return Moving
	case report.StepDone:
		return Done
	case report.StepFailed:
		return Failed
	case report.StepUndone:
		return Undone
	}
	return ToDo
}

// Rebase means that the next Measure has results of earlier times that were not known: what they lost is not lost now.
func (b *Board) Rebase() { b.rebase = true }

// Measure takes all evidence so far, and the paths that must be measured now, at a time of this machine's clock. The
// first results of a path may be old: whether it is measured now shows when they grow.
func (b *Board) Measure(evidence kube.Collected, planned []v1alpha1.Path, at time.Time) {
	first := b.account == nil || b.rebase
	b.rebase = false
	b.account = loss.NewAccount(evidence.Paths, nil, run.Reports(evidence), 0)
	b.account.Leave(run.Left(evidence))
	b.past.events, b.past.looks, b.past.dropped = evidence.Events, evidence.Looks, evidence.EventsDropped
	b.past.losses = b.model.Losses(b.account)
	b.sum = b.account.Sum()
	newest := time.Time{}
	for _, p := range b.account {
		for _, result := range p.Results {
			if result.Last.After(newest) {
				newest = result.Last
			}
		}
		known, result := b.progress[p.ID], v1alpha1.PathResult{}
		if n := len(p.Results); n > 0 {
			result = p.Results[n-1]
		}
		if known == nil {
			known = &progress{node: p.Source.Node, denied: p.Denied, since: result.Since, sent: result.Sent, first: at,
				counts: result.RTTCounts}
			b.progress[p.ID] = known
		}
		if known.take(result, at); known.grew.Equal(at) {
			b.measured = at
		}
	}
	b.planned = nil
	for _, one := range planned {
		if known := b.progress[one.ID]; known != nil { // evidence has every path that was ever planned
			b.planned = append(b.planned, known)
		}
	}
	b.countClasses(first, newest, at)
	if b.chart.begin.IsZero() {
		b.chart.begin = newest
	}
	b.strip = b.chart.strip(b.account)
}

// countClasses sums up by class, and finds which classes lose now.
func (b *Board) countClasses(first bool, newest, at time.Time) {
	sums, paces, open := map[string]*loss.Sum{}, map[string]loss.RoundTrips{}, map[string]bool{}
	classes := map[string]Class{}
	for _, p := range b.account {
		name := className(p.Class, p.Denied)
		if sums[name] == nil {
			sums[name], classes[name] = &loss.Sum{}, Class{Name: p.Class, Denied: p.Denied}
		}
		sums[name].Add(p)
		pace := paces[name]
		for _, result := range p.Results {
			pace.Add(result.RTTCounts)
		}
		paces[name] = pace
		for _, gap := range p.Gaps {
			if end := gap.From.Add(time.Duration(gap.Millis * float64(time.Millisecond))); end.After(b.lastLoss) {
				b.lastLoss = end
			}
			open[name] = open[name] || gap.Open && b.continues(p, gap, at)
		}
	}
	b.classes = nil
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		sum, class := sums[name], classes[name]
		since := paces[name].Since(b.pace[name])
		class.Paths, class.Sent, class.Lost, class.Leaked, class.Longest = sum.Paths, sum.Sent, sum.Lost, sum.Leaked,
			max(sum.LongestMillis, sum.LongestLeakMillis)
		class.P50, class.P99 = since.Quantile(0.5), since.Quantile(0.99)
		b.classes = append(b.classes, class)
		if class.P99 > 0 && !class.Denied && !newest.IsZero() {
			if b.chart.begin.IsZero() {
				b.chart.begin = newest
			}
			b.chart.paced(name, newest, class.P50, class.P99)
		}
		if lost := sum.Lost + sum.Leaked; open[name] || lost > b.lost[name] && !first {
			b.losing[name] = at
		}
		b.lost[name] = sum.Lost + sum.Leaked
	}
	b.pace = paces
}

// continues says whether an open gap goes on: it is of the path's newest counter, and that grows. Gaps of a counter
// whose agent has ended, or of a path that was removed, stay open for ever.
func (b *Board) continues(p *loss.PathAccount, gap loss.Gap, at time.Time) bool {
	newest := p.Results[len(p.Results)-1].Open
	known := b.progress[p.ID]
	return newest != nil && newest.From.Equal(gap.From) && !known.grew.IsZero() && at.Sub(known.grew) < b.recent
}

// fresh says whether a path's results have grown recently.
func (b *Board) fresh(p *progress, at time.Time) bool {
	return !p.grew.IsZero() && at.Sub(p.grew) < b.measures
}

// silent counts the paths that must be measured now, but have no new results, and names the nodes on which they
// start.
func (b *Board) silent(at time.Time) (paths int, nodes []string) {
	quiet := b.quiet(at)
	all := map[string]bool{}
	for p := range quiet {
		all[p.node] = true
	}
	return len(quiet), slices.Sorted(maps.Keys(all))
}

// quiet are the paths that must be measured now, but have no new results. A denied path has its first result only
// after a timeout, unlike the others of its node.
func (b *Board) quiet(at time.Time) map[*progress]bool {
	reports := map[string]bool{}
	for _, p := range b.planned {
		reports[p.node] = reports[p.node] || b.fresh(p, at)
	}
	all := map[*progress]bool{}
	for _, p := range b.planned {
		if !b.fresh(p, at) && !(p.denied && p.sent == 0 && reports[p.node] && at.Sub(p.first) < b.measures) {
			all[p] = true
		}
	}
	return all
}

// State is what is known at a time of this machine's clock.
func (b *Board) State(about About, at time.Time) *State {
	b.recent, b.measures, b.at = max(recent, 2*about.CountEvery), b.within(about.CountEvery), at
	s := &State{Nodes: b.cells, Lines: b.lines, Strip: b.strip, Steps: make([]Mark, len(b.plan.Steps)),
		Timeline: b.past.show(b.script, b.plan.Foreign(), about.Unseen)}
	stand := engine.Judge(b.plan.Steps, b.state, about.Held)
	gate, measures := b.pending()
	now := Now{Stand: stand.Word, Cause: b.state.Cause, Over: b.state.Over(), Runner: about.Runner,
		Asked: about.Asked, Waits: about.Waits, Gate: stand.Gate, Missing: stand.Waits,
		Action: b.action, Step: b.index(b.state.Step), Measured: b.measured, Classes: b.classes,
		Seen: run.Seen{Paths: len(b.account), Sent: b.sum.Sent, Lost: b.sum.Lost, Excused: b.sum.Excused,
			Leaked: b.sum.Leaked, LongestGapMillis: b.sum.LongestMillis}}
	if !about.Held {
		now.Ways = stand.Ways
	}
	if len(b.records) > 0 {
		now.Begun = b.records[0].At
	}
	switch {
	case now.Over:
		now.Ended, now.Step, now.Action = b.state.At, -1, ""
	case stand.Left > 0:
		now.Left = "about " + step.Duration(max(stand.Left, time.Minute).Round(time.Minute)).About()
	}
	for i := range s.Steps {
		s.Steps[i] = markOf(b.model.Steps[i].State)
		if s.Steps[i] == Moving && measures && gate.ID == b.plan.Steps[i].ID {
			s.Steps[i] = Watched
		}
		if s.Steps[i] == Done {
			now.DoneSteps++
		}
	}
	for _, node := range b.cells {
		if node.Mark == Done {
			now.DoneNodes++
		}
	}
	s.BGP = b.bgp.show(now.Over, b.measures, at)
	b.judge(&now, about, at)
	if about.Unread != "" {
		now.Remarks = append(now.Remarks, about.Unread)
	}
	s.Now = now
	return s
}

// judge says in one sentence whether anything is being lost now. What is not measured is not called good.
func (b *Board) judge(now *Now, about About, at time.Time) {
	var losing, leaking []string
	for _, class := range b.classes {
		since, ok := b.losing[className(class.Name, class.Denied)]
		switch {
		case !ok || now.Over || at.Sub(since) >= b.recent:
		case class.Denied:
			leaking = append(leaking, class.Name)
		default:
			losing = append(losing, class.Name)
		}
	}
	silent, nodes := b.silent(at)
	measuring := silent < len(b.planned) && !now.Over
	earlier := now.Seen.Lost > 0 || now.Seen.Leaked > 0
	failed := ""
	if n := b.model.NewPods; n != nil {
		now.Remarks = append(now.Remarks, "New pods: "+n.Text()+".")
		if len(n.Failed) > 0 {
			failed = n.Failed[0].String()
			earlier = true
		}
	}
	if text := b.model.Samples.Text(); text != "" {
		now.Remarks = append(now.Remarks, "Sampled connections: "+text+".")
	}
	switch {
	case len(losing) > 0 && (!b.plan.LossyBefore() || len(leaking) > 0):
		now.Tone, now.Loss = "bad", "Probes are being lost now: "+strings.Join(losing, ", ")
	case len(leaking) > 0:
		now.Tone, now.Loss = "bad", "Traffic that policy denies gets through now: "+strings.Join(leaking, ", ")
	case failed != "" && !now.Over:
		now.Tone, now.Loss = "bad", "New pods failed: "+failed
	case len(losing) > 0:
		now.Tone, now.Loss = "fair", "Probes are being lost now, as they may be in the baseline: "+
			strings.Join(losing, ", ")
	case !b.plan.OnNodes():
		now.Tone, now.Loss = "none", "No probes run: the gates of this plan measure"
	case now.Over && earlier:
		now.Tone, now.Loss = "fair", "The run has ended; there were losses"
	case now.Over && !about.Final:
		now.Tone, now.Loss = "none", "The run has ended; its last results are not read yet"
	case now.Over && (about.Unread != "" || b.sum.Sent == 0):
		now.Tone, now.Loss = "none", "The run has ended, but results may be missing: see `theseus report`"
	case now.Over:
		now.Tone, now.Loss = "good", "The run has ended; nothing was lost"
	case b.sum.Sent == 0:
		now.Tone, now.Loss = "none", "Nothing is measured yet"
	case !measuring:
		now.Tone, now.Loss = "none", "Nothing is measured at the moment"
	case silent > 0:
		now.Tone, now.Loss = "none", fmt.Sprintf("Not known for %d of %s", silent,
			cluster.Count(len(b.planned), "path"))
	case earlier:
		now.Tone, now.Loss = "fair", "Nothing is being lost now, but there were losses"
	default:
		now.Tone, now.Loss = "good", "Nothing is being lost"
	}
	if len(losing) > 0 && len(leaking) > 0 {
		now.Remarks = append(now.Remarks, "Traffic that policy denies gets through as well: "+
			strings.Join(leaking, ", ")+".")
	}
	if measuring && silent > 0 {
		now.Remarks = append(now.Remarks, "Paths without new results start on "+some(nodes)+".")
	}
	if earlier && !b.lastLoss.IsZero() {
		now.Remarks = append(now.Remarks, "The last loss ended at "+b.lastLoss.UTC().Format(time.TimeOnly)+" UTC.")
	}
}

// some names up to five, and how many more there are.
func some(names []string) string {
	if len(names) <= 5 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), len(names)-5)
}
