package run

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Lines is the view of a pipe: a line per event, with the time since the start.
type Lines struct {
	lock   sync.Mutex
	Out    io.Writer
	Script *Script
	Begun  time.Time
	shown  time.Time // of the line before
	last   Seen
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
	fmt.Fprintf(v.Out, "%7s  %s\n", Elapsed(at.Sub(v.Begun)), text)
}

// Past implements View.
func (v *Lines) Past(records []engine.Record) {
	v.Script.Learn(records)
}

// Record implements View.
func (v *Lines) Record(r engine.Record) { v.print(r.At, v.Script.Describe(r)) }

// Note implements View.
func (v *Lines) Note(text string) { v.print(time.Now(), "        "+text) }

// Say implements View.
func (v *Lines) Say(text string) { v.print(time.Now(), text) }

// Output implements View.
func (v *Lines) Output(line string) { v.print(time.Now(), "| "+line) }

// Close does nothing: lines leave a terminal as it was.
func (v *Lines) Close() {}

// Evidence implements View. It prints a line when the count of lost probes, or of leaks, has changed.
func (v *Lines) Evidence(now Seen) {
	if now.Lost != v.last.Lost || now.Leaked != v.last.Leaked {
		v.print(time.Now(), "        probes: "+now.String())
	}
	v.last = now
}

// Elapsed is a duration as 1:02.3.
func Elapsed(d time.Duration) string {
	d = d.Round(100 * time.Millisecond)
	return fmt.Sprintf("%d:%04.1f", int(d.Minutes()), (d % time.Minute).Seconds())
}
