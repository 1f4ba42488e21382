package view

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// live is the view of a terminal: records scroll by, and below them is a block that is redrawn: the waves, the current
// step, the probes' results, and the remaining time. The block never fills the screen: rows that have scrolled off the
// screen could not be redrawn.
type live struct {
	lock     sync.Mutex
	out      io.Writer
	plan     *plan.Plan
	script   *run.Script
	size     func() (width, height int) // of the screen as it is now
	plain    bool                       // NO_COLOR
	begun    time.Time                  // of this run
	now      time.Time
	since    time.Time // of the step
	held     bool      // the run was paused in the step
	pace     estimate.Pace
	step     string
	action   string
	note     string
	undoing  bool
	evidence run.Seen
	names    *NameBoard      // of a plan of the strategy mirror
	finished map[string]bool // steps
	drawn    []int           // the length of each line of the block on the screen
}

func newLive(out io.Writer, p *plan.Plan, size func() (width, height int), plain bool) *live {
	return &live{out: out, plan: p, script: run.NewScript(p), names: NewNameBoard(p), size: size,
		finished: map[string]bool{}, plain: plain}
}

func (v *live) Past(records []engine.Record) {
	v.lock.Lock()
	defer v.lock.Unlock()
	for _, r := range records {
		v.take(r)
	}
	v.script.Learn(records)
}

func (v *live) Record(r engine.Record) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if v.begun.IsZero() {
		v.begun = r.At
	}
	v.take(r)
	text := v.script.Describe(r)
	v.redraw(func(out io.Writer, width int) {
		if text == "" {
			return
		}
		for _, line := range wrapped(run.Elapsed(r.At.Sub(v.begun))+"  "+text, width, 19) {
			fmt.Fprintln(out, v.emphasis(r, line))
		}
	})
}

// take updates the contents of the block.
func (v *live) take(r engine.Record) {
	v.now = r.At
	if r.Step != "" && r.Step != v.step {
		v.step, v.since, v.held = r.Step, r.At, false
	}
	v.action, v.note = "", ""
	v.script.Learn([]engine.Record{r})
	v.names.Take(r, v.script.Find(r.Action))
	switch r.Event {
	case engine.Intended:
		v.action = v.script.Action(r)
	case engine.GateAsked:
		v.action = "the gate measures"
	case engine.Paused, engine.Resumed:
		v.held = true
	case engine.StepDone:
		v.finished[r.Step] = true
		if done := v.script.Step(r.Step); done != nil && !v.held {
			v.pace.Learn(done, r.At.Sub(v.since))
		}
	case engine.StepUndone:
		delete(v.finished, r.Step)
	case engine.RollingBack:
		v.undoing = true
	}
}

func (v *live) Note(text string) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.note = text
	v.redraw(nil)
}

func (v *live) Say(text string) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.redraw(func(out io.Writer, width int) {
		for _, line := range wrapped(text, width, 4) {
			fmt.Fprintln(out, v.colour("33", line))
		}
	})
}

func (v *live) Output(line string) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.redraw(func(out io.Writer, width int) {
		for _, line := range wrapped("| "+line, width, 2) {
			fmt.Fprintln(out, line)
		}
	})
}

func (v *live) Evidence(now run.Seen) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.evidence, v.now = now, time.Now()
	v.redraw(nil)
}

// Close leaves the last block on the screen.
func (v *live) Close() {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.drawn = nil
}

// redraw erases the block, prints new lines above it, and draws the block again, in one write.
func (v *live) redraw(scroll func(out io.Writer, width int)) {
	width, height := v.size()
	var move, out bytes.Buffer
	if up := v.rows(width); up > 0 { // from the first column: the terminal may have echoed a key
		fmt.Fprintf(&move, "\r\x1b[%dA\x1b[J", min(up, height-1))
	}
	if scroll != nil {
		scroll(&out, width)
	}
	v.drawn = nil
	for _, line := range v.block(width, height-2) {
		line = string(printable.Text([]byte(line)))
		fmt.Fprintln(&out, line)
		v.drawn = append(v.drawn, utf8.RuneCountInString(escapes.ReplaceAllString(line, "")))
	}
	v.out.Write(append(move.Bytes(), printable.Text(out.Bytes())...)) //nolint:errcheck // the terminal is closed
}

// escapes matches colour escapes.
var escapes = regexp.MustCompile("\x1b\\[[0-9]*m")

// rows is how many rows of the screen the block takes: a terminal that became narrower has wrapped its lines.
func (v *live) rows(width int) int {
	rows := 0
	for _, length := range v.drawn {
		rows += max((length+width-1)/width, 1)
	}
	return rows
}

// block is the text of the block, in at most most lines of at most width columns.
func (v *live) block(width, most int) []string {
	var below []string
	add := func(line string) { below = append(below, cut(line, width)) }
	if current := v.script.Step(v.step); current != nil {
		verb := "step"
		if v.undoing {
			verb = "undo"
		}
		add(fmt.Sprintf("%s %d/%d %s", verb, v.script.Index(v.step), v.script.Total(), current.Title))
	}
	for _, line := range []string{v.action, v.note} {
		if line != "" {
			add("         " + line)
		}
	}
	if v.names != nil {
		add("gates    " + v.names.String())
	}
	if v.plan.OnNodes() {
		add("probes   " + v.evidence.String())
	}
	if v.evidence.Lost > 0 || v.evidence.Leaked > 0 {
		below[len(below)-1] = v.colour("31", below[len(below)-1])
	}
	add("elapsed  " + v.times())
	waves := v.waves(width)
	if room := max(min(most-len(below)-1, most/2), 1); len(waves) > room { // half of the screen is for the lines above
		waves = v.window(waves, room)
	}
	block := slices.Concat([]string{strings.Repeat("─", min(width-1, 60))}, waves, below)
	return block[max(len(block)-most, 0):]
}

// times are how long this run has taken, and the remaining time if it is not rolling back.
func (v *live) times() string {
	text := v.now.Sub(v.begun).Round(time.Second).String()
	if v.begun.IsZero() {
		text = "0s"
	}
	if v.undoing {
		return text + "   rolling back"
	}
	return text + "   left " + About(v.left())
}

// waves is a line for each wave, below those about names: its nodes, or, if that is too long, counts of their states.
func (v *live) waves(width int) []string {
	var lines []string
	if v.names != nil {
		lines = v.names.lines(width)
	}
	nodes := v.nodes()
	for _, wave := range v.plan.Waves {
		length, counts := 9, map[progress]int{}
		for _, node := range wave.Nodes {
			length += utf8.RuneCountInString(node) + 4
			counts[nodes[node]]++
		}
		var parts []string
		if length < width {
			for _, node := range wave.Nodes {
				parts = append(parts, v.mark(nodes[node])+" "+node)
			}
		} else {
			for _, p := range []progress{switched, begun, untouched} {
				if counts[p] > 0 {
					parts = append(parts, fmt.Sprintf("%s %d", v.mark(p), counts[p]))
				}
			}
			parts = append(parts, "of "+cluster.Count(len(wave.Nodes), "node"))
		}
		lines = append(lines, fmt.Sprintf("%-8s %s", wave.Name, strings.Join(parts, "  ")))
	}
	return lines
}

// window keeps the lines around the current wave, and says how many are left out.
func (v *live) window(lines []string, room int) []string {
	at := 0
	if current := v.script.Step(v.step); current != nil && current.Wave != "" {
		at = max(slices.IndexFunc(v.plan.Waves, func(w plan.Wave) bool { return w.Name == current.Wave }), 0)
	}
	room = max(room-1, 1)
	from := min(max(at-1, 0), len(lines)-room)
	shown := slices.Clone(lines[from : from+room])
	return append(shown, fmt.Sprintf("         showing %d of %d waves", room, len(lines)))
}

// progress is the progress of a node's own steps.
type progress int

const (
	untouched progress = iota
	begun
	switched
)

func (v *live) nodes() map[string]progress {
	touched, open := map[string]bool{}, map[string]bool{}
	for i := range v.plan.Steps {
		one := &v.plan.Steps[i]
		if one.Wave == "" {
			continue
		}
		for _, node := range one.Nodes() {
			touched[node] = touched[node] || v.finished[one.ID] || one.ID == v.step
			open[node] = open[node] || !v.finished[one.ID]
		}
	}
	far := map[string]progress{}
	for node := range touched {
		switch {
		case touched[node] && !open[node]:
			far[node] = switched
		case touched[node]:
			far[node] = begun
		}
	}
	return far
}

func (v *live) mark(p progress) string {
	switch p {
	case switched:
		return v.colour("32", "●")
	case begun:
		return v.colour("33", "◐")
	}
	return "○"
}

func (v *live) left() time.Duration {
	var left time.Duration
	for i := range v.plan.Steps {
		one := &v.plan.Steps[i]
		takes := v.pace.Takes(one)
		if one.ID == v.step {
			takes = max(takes-v.now.Sub(v.since), 0)
		}
		if !v.finished[one.ID] {
			left += takes
		}
	}
	return left
}

// About is an approximate duration in words.
func About(d time.Duration) string {
	if d < time.Minute {
		return "less than a minute"
	}
	return "about " + step.Duration(d.Round(time.Minute)).About()
}

// emphasis colours a line about a record.
func (v *live) emphasis(r engine.Record, line string) string {
	switch {
	case r.Result == engine.ResultFailed, r.Event == engine.GateAnswer && (r.Verdict == nil || !r.Verdict.Pass):
		return v.colour("31", line)
	case r.Event == engine.StepBegan:
		return v.colour("1", line)
	}
	return line
}

func (v *live) colour(code, text string) string {
	if v.plain {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// cut shortens a line without colours to one row of the screen, so that the block's height is known. The last
// column stays free: some terminals wrap once it is written.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) < width {
		return line
	}
	return string([]rune(line)[:width-2]) + "…"
}

// wrapped breaks a text between words into lines of less than a width; all but the first begin with an indent.
func wrapped(text string, width, indent int) []string {
	var lines []string
	indent = min(indent, width/2)
	for utf8.RuneCountInString(text) >= width {
		runes := []rune(text)
		end := width - 1
		for at := end; at > indent; at-- {
			if runes[at] == ' ' {
				end = at
				break
			}
		}
		lines = append(lines, string(runes[:end]))
		text = strings.Repeat(" ", indent) + strings.TrimLeft(string(runes[end:]), " ")
	}
	return append(lines, text)
}
