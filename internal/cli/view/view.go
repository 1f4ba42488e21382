package view

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// View shows a run as it happens.
type View interface {
	run.View
	// Close leaves the terminal as it was.
	Close()
}

// Lines is the view of a pipe: a line per event, with the time since the start.
type Lines struct {
	lock   sync.Mutex
	Out    io.Writer
	Script *run.Script
	Begun  time.Time
	shown  time.Time // of the line before
	last   run.Seen
}

func (v *Lines) print(at time.Time, text string) {
	if text == "" {
		return
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	if at.Before(v.shown) { // a record has the time of its action, and is printed once the journal has it
		at = v.shown
	}
	v.shown = at
	text = strings.ReplaceAll(text, "\n", "\n         ") // messages of others must not look like lines of their own
	fmt.Fprintf(v.Out, "%7s  %s\n", clockText(at.Sub(v.Begun)), text)
}

func (v *Lines) Past(records []engine.Record) {
	v.Script.Learn(records)
}

func (v *Lines) Record(r engine.Record) { v.print(r.At, v.Script.Describe(r)) }
func (v *Lines) Note(text string)       { v.print(time.Now(), "        "+text) }
func (v *Lines) Say(text string)        { v.print(time.Now(), text) }
func (v *Lines) Close()                 {}

func (v *Lines) Evidence(now run.Seen) {
	if now.Lost != v.last.Lost || now.Leaked != v.last.Leaked {
		v.print(time.Now(), "        probes: "+now.String())
	}
	v.last = now
}

// Events is the view for programs: every record as one JSON object on a line.
type Events struct {
	lock sync.Mutex
	Out  io.Writer
}

func (v *Events) write(kind string, value any) {
	v.lock.Lock()
	defer v.lock.Unlock()
	json.NewEncoder(v.Out).Encode(map[string]any{"kind": kind, kind: value}) //nolint:errcheck // a closed pipe ends the program elsewhere
}

func (v *Events) Past([]engine.Record)   {}
func (v *Events) Record(r engine.Record) { v.write("record", r) }
func (v *Events) Note(text string)       { v.write("note", text) }
func (v *Events) Say(text string)        { v.write("warning", text) }
func (v *Events) Evidence(now run.Seen)  { v.write("evidence", now) }
func (v *Events) Close()                 {}

// clockText is a duration as 1:02.3.
func clockText(d time.Duration) string {
	d = d.Round(100 * time.Millisecond)
	return fmt.Sprintf("%d:%04.1f", int(d.Minutes()), (d % time.Minute).Seconds())
}
