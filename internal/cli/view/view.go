package view

import (
	"encoding/json"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
type Lines = run.Lines

// Events is the view for programs: every record as one JSON object on a line.
type Events struct {
	lock sync.Mutex
	Out  io.Writer
}

func (v *Events) write(kind string, value any) {
	v.lock.Lock()
	defer v.lock.Unlock()
	event := map[string]any{"kind": kind, kind: value}
	json.NewEncoder(v.Out).Encode(event) //nolint:errcheck // a closed pipe ends the program elsewhere
}

func (v *Events) Past([]engine.Record)   {}
func (v *Events) Record(r engine.Record) { v.write("record", r) }
func (v *Events) Note(text string)       { v.write("note", text) }
func (v *Events) Say(text string)        { v.write("warning", text) }
func (v *Events) Evidence(now run.Seen)  { v.write("evidence", now) }
func (v *Events) Output(line string)     { v.write("output", line) }
func (v *Events) Close()                 {}

// Condition shows a condition of the Migration that has changed.
func (v *Events) Condition(c metav1.Condition) { v.write("condition", c) }
