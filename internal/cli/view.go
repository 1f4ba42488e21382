package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// view shows a run as it happens.
type view interface {
	// Past is told, before all else, what earlier processes wrote to the journal.
	Past([]engine.Record)
	// Record is told every record of the journal, once.
	Record(engine.Record)
	// Note is told what a long action waits for.
	Note(string)
	// Say is told what a person must not miss.
	Say(string)
	// Evidence is told, about once a second, what the probes have seen so far.
	Evidence(evidenceSummary)
	// Close leaves the terminal as it was.
	Close()
}

// evidenceSummary is what the probes have seen, in four figures.
type evidenceSummary struct {
	Paths            int     `json:"paths"`
	Sent             int64   `json:"sent"`
	Lost             int64   `json:"lost"`
	Leaked           int64   `json:"leaked"`
	LongestGapMillis float64 `json:"longestGapMillis"`
}

func (e evidenceSummary) String() string {
	return fmt.Sprintf("%s, %s probes, %d lost, %d denied answered, longest gap %.0f ms",
		cluster.Count(e.Paths, "path"), grouped(e.Sent), e.Lost, e.Leaked, e.LongestGapMillis)
}

// script knows a plan's steps by id, for views.
type script struct {
	steps   map[string]*step.Step
	index   map[string]int
	actions map[string]*step.Action
	total   int
}

func newScript(p *plan.Plan) *script {
	s := &script{steps: map[string]*step.Step{}, index: map[string]int{}, actions: map[string]*step.Action{}, total: len(p.Steps)}
	for i := range p.Steps {
		one := &p.Steps[i]
		s.steps[one.ID], s.index[one.ID] = one, i+1
		for _, list := range [][]step.Action{one.Actions, one.Undo} {
			for j := range list {
				s.actions[list[j].ID] = &list[j]
			}
		}
	}
	return s
}

// describe puts a record into words; empty for records that say nothing to people.
func (s *script) describe(r engine.Record) string {
	action := s.action(r)
	title := r.Step
	if one := s.steps[r.Step]; one != nil {
		title = one.Title
	}
	switch r.Event {
	case engine.Started:
		return "started"
	case engine.StepBegan:
		return s.place(r.Step)
	case engine.Acted:
		return "        " + acted(action, r)
	case engine.GateAnswer:
		mark := "pass"
		if r.Verdict != nil && !r.Verdict.Pass {
			mark = "FAIL"
		}
		if r.Verdict == nil {
			return "        gate: " + r.Error
		}
		return fmt.Sprintf("        gate: %s: %s", mark, r.Verdict.Reason)
	case engine.Paused:
		return "paused: everything works as it stands; theseus status says what leads on from there"
	case engine.Resumed:
		return "resumed by " + r.By
	case engine.RollingBack:
		return "rolling back: " + r.Error
	case engine.TakingBack:
		return "taking back this step alone: " + r.Error
	case engine.StepUndone:
		return "        undone: " + title
	case engine.Finished:
		return "finished: " + r.Result
	}
	return ""
}

// place is where a step stands in the plan, and its title.
func (s *script) place(id string) string {
	if one := s.steps[id]; one != nil {
		return fmt.Sprintf("[%d/%d] %s", s.index[id], s.total, one.Title)
	}
	return id
}

// learn takes in the inverses of actions, so as to name them in a rollback.
func (s *script) learn(records []engine.Record) {
	for _, r := range records {
		if r.Inverse != nil {
			s.actions[r.Inverse.ID] = r.Inverse
		}
	}
}

// action is the title of the action that a record is about.
func (s *script) action(r engine.Record) string {
	s.learn([]engine.Record{r})
	if action := s.actions[r.Action]; action != nil {
		return action.Title
	}
	return r.Action
}

func acted(title string, r engine.Record) string {
	switch r.Result {
	case "already":
		return title + ": already so"
	case "failed":
		return title + ": FAILED: " + r.Error
	}
	return title
}

// lines is the view of a pipe: a line an event, with the time since the start.
type lines struct {
	lock   sync.Mutex
	out    io.Writer
	script *script
	begun  time.Time
	last   evidenceSummary
}

func (v *lines) print(at time.Time, text string) {
	if text == "" {
		return
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	text = strings.ReplaceAll(text, "\n", "\n         ") // a message of others looks like no line of its own
	fmt.Fprintf(v.out, "%7s  %s\n", clockText(at.Sub(v.begun)), text)
}

func (v *lines) Past(records []engine.Record) {
	v.script.learn(records)
}

func (v *lines) Record(r engine.Record) { v.print(r.At, v.script.describe(r)) }
func (v *lines) Note(text string)       { v.print(time.Now(), "        "+text) }
func (v *lines) Say(text string)        { v.print(time.Now(), text) }
func (v *lines) Close()                 {}

func (v *lines) Evidence(now evidenceSummary) {
	if now.Lost != v.last.Lost || now.Leaked != v.last.Leaked {
		v.print(time.Now(), "        probes: "+now.String())
	}
	v.last = now
}

// events is the view of a machine: every record as one JSON object on a line.
type events struct {
	lock sync.Mutex
	out  io.Writer
}

func (v *events) write(kind string, value any) {
	v.lock.Lock()
	defer v.lock.Unlock()
	json.NewEncoder(v.out).Encode(map[string]any{"kind": kind, kind: value}) //nolint:errcheck // a closed pipe ends the program elsewhere
}

func (v *events) Past([]engine.Record)         {}
func (v *events) Record(r engine.Record)       { v.write("record", r) }
func (v *events) Note(text string)             { v.write("note", text) }
func (v *events) Say(text string)              { v.write("warning", text) }
func (v *events) Evidence(now evidenceSummary) { v.write("evidence", now) }
func (v *events) Close()                       {}

// clockText is a duration as 1:02.3.
func clockText(d time.Duration) string {
	d = d.Round(100 * time.Millisecond)
	return fmt.Sprintf("%d:%04.1f", int(d.Minutes()), (d % time.Minute).Seconds())
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
