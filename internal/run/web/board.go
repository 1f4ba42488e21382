package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/step"
)

// recent is how long a loss counts as present, and a node without new results as one that reports: reports come every second or two.
const recent = 15 * time.Second

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
	grown    map[string]grown           // of every node that reported
	losing   map[string]time.Time       // when a class last lost, by the clock of this machine
	lost     map[string]int64           // the losses of a class at the results before
	lastLoss time.Time                  // by the nodes' clocks
	measured time.Time
	chart    chart
	strip    Strip
}

// grown is how many probes a node had sent, and when that number last grew, by the clock of this machine.
type grown struct {
	sent int64
	at   time.Time
}

// About is what the board is told about a run besides its journal and its measurements.
type About struct {
	// Held is true while a process runs the migration, and Runner says which.
	Held   bool
	Runner string
	Asked  string
	Waits  []string
	// Unread says which results are missing; empty if none are.
	Unread string
}

// NewBoard makes the board of a plan's run.
func NewBoard(p *plan.Plan) *Board {
	b := &Board{plan: p, script: run.NewScript(p), nodes: map[string]int{}, pace: map[string]loss.RoundTrips{}, grown: map[string]grown{},
		losing: map[string]time.Time{}, lost: map[string]int64{}, state: engine.State{Phase: engine.PhaseNew}}
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
		if text := strings.TrimSpace(b.script.Describe(r)); text != "" {
			failed := r.Result == engine.ResultFailed || r.Event == engine.GateAnswer && (r.Verdict == nil || !r.Verdict.Pass)
			ended := r.Event == engine.Finished && r.Result != engine.ResultDone
			b.lines = append(b.lines, Line{Seq: r.Seq, At: r.At, Text: text, Step: r.Step, Minor: r.Event == engine.Acted && !failed,
				Bad: failed || ended || slices.Contains([]engine.Event{engine.Paused, engine.RollingBack, engine.TakingBack}, r.Event)})
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

// Measure takes all evidence so far, at a time of this machine's clock.
func (b *Board) Measure(evidence kube.Collected, at time.Time) {
	first := b.measured.IsZero()
	b.account = loss.NewAccount(evidence.Paths, nil, run.Reports(evidence), 0)
	b.sum = b.account.Sum()
	newest, sent := time.Time{}, map[string]int64{}
	for _, p := range b.account {
		for _, result := range p.Results {
			if result.Last.After(newest) {
				newest = result.Last
			}
		}
		sent[p.Source.Node] += p.Sent
	}
	for node, n := range sent {
		if known := b.grown[node]; n > known.sent {
			b.grown[node] = grown{n, at}
			b.measured = at
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
			open[name] = open[name] || gap.Open && b.reports(p.Source.Node, at)
		}
	}
	b.classes = nil
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		sum, class := sums[name], classes[name]
		since := paces[name].Since(b.pace[name])
		class.Paths, class.Sent, class.Lost, class.Leaked, class.Longest = sum.Paths, sum.Sent, sum.Lost, sum.Leaked, max(sum.LongestMillis, sum.LongestLeakMillis)
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

// reports says whether a node's results have grown recently.
func (b *Board) reports(node string, at time.Time) bool {
	known, ok := b.grown[node]
	return ok && at.Sub(known.at) < recent
}

// State is what is known at a time of this machine's clock.
func (b *Board) State(about About, at time.Time) *State {
	s := &State{Nodes: b.cells, Lines: b.lines, Strip: b.strip, Steps: make([]Mark, len(b.plan.Steps))}
	stand := engine.Judge(b.plan.Steps, b.state, about.Held)
	gate, measures := b.pending()
	now := Now{Stand: stand.Word, Cause: b.state.Cause, Over: b.state.Over(), Runner: about.Runner, Asked: about.Asked, Waits: about.Waits,
		Gate: stand.Gate, Missing: stand.Waits, Action: b.action, Step: b.index(b.state.Step), Measured: b.measured, Classes: b.classes,
		Seen: run.Seen{Paths: len(b.account), Sent: b.sum.Sent, Lost: b.sum.Lost, Excused: b.sum.Excused, Leaked: b.sum.Leaked, LongestGapMillis: b.sum.LongestMillis}}
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
	b.judge(&now, at)
	if about.Unread != "" {
		now.Remarks = append(now.Remarks, about.Unread)
	}
	s.Now = now
	return s
}

// judge says in one sentence whether anything is being lost now. What is not measured is not called good.
func (b *Board) judge(now *Now, at time.Time) {
	var losing, leaking, silent []string
	for _, class := range b.classes {
		since, ok := b.losing[className(class.Name, class.Denied)]
		switch {
		case !ok || at.Sub(since) >= recent:
		case class.Denied:
			leaking = append(leaking, class.Name)
		default:
			losing = append(losing, class.Name)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(b.grown)) {
		if !b.reports(node, at) {
			silent = append(silent, node)
		}
	}
	measuring := len(silent) < len(b.grown)
	earlier := now.Seen.Lost > 0 || now.Seen.Leaked > 0
	switch {
	case len(losing) > 0:
		now.Tone, now.Loss = "bad", "Probes are being lost now: "+strings.Join(losing, ", ")
	case len(leaking) > 0:
		now.Tone, now.Loss = "bad", "Traffic that policy denies gets through now: "+strings.Join(leaking, ", ")
	case !b.plan.OnNodes():
		now.Tone, now.Loss = "none", "No probes run: the gates of this plan measure"
	case len(b.grown) == 0:
		now.Tone, now.Loss = "none", "Nothing is measured yet"
	case !measuring && now.Over && !earlier:
		now.Tone, now.Loss = "good", "The run has ended; nothing was lost"
	case !measuring && now.Over:
		now.Tone, now.Loss = "fair", "The run has ended; there were losses"
	case !measuring:
		now.Tone, now.Loss = "none", "Nothing is measured at the moment"
	case len(silent) > 0:
		now.Tone, now.Loss = "none", fmt.Sprintf("Not known for %d of %s: no reports", len(silent), cluster.Count(len(b.grown), "node"))
	case earlier:
		now.Tone, now.Loss = "fair", "Nothing is being lost now, but there were losses"
	default:
		now.Tone, now.Loss = "good", "Nothing is being lost"
	}
	if len(losing) > 0 && len(leaking) > 0 {
		now.Remarks = append(now.Remarks, "Traffic that policy denies gets through as well: "+strings.Join(leaking, ", ")+".")
	}
	if measuring && len(silent) > 0 {
		now.Remarks = append(now.Remarks, fmt.Sprintf("No new results for %d s and more from %s.", int(recent.Seconds()), some(silent)))
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
