package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/engine"
	"github.com/theseus-cni/theseus/internal/plan"
)

// live is the view of a terminal: what happened scrolls by, and below it stands a block that is drawn anew:
// the waves, the step at hand, what the probes see, and the time that is left.
type live struct {
	lock     sync.Mutex
	out      io.Writer
	plan     *plan.Plan
	script   *script
	width    int
	begun    time.Time
	now      time.Time
	step     string
	note     string
	evidence evidenceSummary
	finished map[string]bool // steps
	drawn    int             // lines of the block on the screen
	plain    bool            // NO_COLOR
}

func newLive(out io.Writer, p *plan.Plan, width int, plain bool) *live {
	return &live{out: out, plan: p, script: newScript(p), width: width, finished: map[string]bool{}, plain: plain}
}

func (v *live) Record(r engine.Record) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if v.begun.IsZero() {
		v.begun = r.At
	}
	v.now = r.At
	switch r.Event {
	case engine.StepBegan:
		v.step, v.note = r.Step, ""
	case engine.StepDone:
		v.finished[r.Step] = true
	case engine.StepUndone:
		delete(v.finished, r.Step)
	}
	text := v.script.describe(r)
	v.redraw(func() {
		if text != "" {
			fmt.Fprintf(v.out, "%s\n", v.cut(clockText(r.At.Sub(v.begun))+"  "+text))
		}
	})
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
	v.redraw(func() { fmt.Fprintln(v.out, text) })
}

func (v *live) Evidence(now evidenceSummary) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.evidence, v.now = now, time.Now()
	v.redraw(nil)
}

// Close leaves the last block on the screen.
func (v *live) Close() { v.drawn = 0 }

// redraw wipes the block, lets something scroll by, and draws the block again.
func (v *live) redraw(scroll func()) {
	if v.drawn > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", v.drawn)
	}
	if scroll != nil {
		scroll()
	}
	block := v.block()
	for _, line := range block {
		fmt.Fprintln(v.out, v.cut(line))
	}
	v.drawn = len(block)
}

func (v *live) block() []string {
	block := []string{strings.Repeat("─", min(v.width, 60))}
	for _, wave := range v.plan.Waves {
		nodes := make([]string, len(wave.Nodes))
		for i, node := range wave.Nodes {
			nodes[i] = v.mark(node) + " " + node
		}
		block = append(block, fmt.Sprintf("%-8s %s", wave.Name, strings.Join(nodes, "  ")))
	}
	if current := v.script.steps[v.step]; current != nil {
		block = append(block, fmt.Sprintf("step %d/%d %s", v.script.index[v.step], v.script.total, current.Title))
	}
	if v.note != "" {
		block = append(block, "         "+v.note)
	}
	return append(block, "probes   "+v.evidence.String(),
		fmt.Sprintf("elapsed  %s   left about %s", clockText(v.now.Sub(v.begun)), clockText(v.left())))
}

// mark is how far a node's own steps are: none, some, all.
func (v *live) mark(node string) string {
	some, all := false, true
	for i := range v.plan.Steps {
		if one := &v.plan.Steps[i]; one.Node == node && one.Wave != "" {
			some = some || v.finished[one.ID] || one.ID == v.step
			all = all && v.finished[one.ID]
		}
	}
	switch {
	case some && all:
		return v.colour("32", "●")
	case some:
		return v.colour("33", "◐")
	}
	return "○"
}

func (v *live) left() time.Duration {
	var left time.Duration
	for i := range v.plan.Steps {
		if !v.finished[v.plan.Steps[i].ID] {
			left += time.Duration(v.plan.Steps[i].Estimate)
		}
	}
	return left
}

func (v *live) colour(code, text string) string {
	if v.plain {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// cut keeps a line on one row of the screen, so that the block's height is known.
func (v *live) cut(line string) string {
	runes := []rune(line)
	if len(runes) <= v.width || strings.Contains(line, "\x1b") {
		return line
	}
	return string(runes[:v.width-1]) + "…"
}
