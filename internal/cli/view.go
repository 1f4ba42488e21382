package cli

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

// view shows a run as it happens.
type view interface {
	run.View
	// Close leaves the terminal as it was.
	Close()
}

// lines is the view of a pipe: a line an event, with the time since the start.
type lines struct {
	lock   sync.Mutex
	out    io.Writer
	script *run.Script
	begun  time.Time
	shown  time.Time // of the line before
	last   run.Seen
}

func (v *lines) print(at time.Time, text string) {
	if text == "" {
		return
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	if at.Before(v.shown) { // a record's time is that of the act, and it is printed once the journal has it
		at = v.shown
	}
	v.shown = at
	text = strings.ReplaceAll(text, "\n", "\n         ") // a message of others looks like no line of its own
	fmt.Fprintf(v.out, "%7s  %s\n", clockText(at.Sub(v.begun)), text)
}

func (v *lines) Past(records []engine.Record) {
	v.script.Learn(records)
}

func (v *lines) Record(r engine.Record) { v.print(r.At, v.script.Describe(r)) }
func (v *lines) Note(text string)       { v.print(time.Now(), "        "+text) }
func (v *lines) Say(text string)        { v.print(time.Now(), text) }
func (v *lines) Close()                 {}

func (v *lines) Evidence(now run.Seen) {
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

func (v *events) Past([]engine.Record)   {}
func (v *events) Record(r engine.Record) { v.write("record", r) }
func (v *events) Note(text string)       { v.write("note", text) }
func (v *events) Say(text string)        { v.write("warning", text) }
func (v *events) Evidence(now run.Seen)  { v.write("evidence", now) }
func (v *events) Close()                 {}

// clockText is a duration as 1:02.3.
func clockText(d time.Duration) string {
	d = d.Round(100 * time.Millisecond)
	return fmt.Sprintf("%d:%04.1f", int(d.Minutes()), (d % time.Minute).Seconds())
}
