package web

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/run"
)

// State is everything on the page that changes. It is never changed once it is published.
type State struct {
	Now Now
	// Nodes are those of the waves, in their order, and Steps the states of the plan's steps.
	Nodes []Node
	Steps []Mark
	// Lines are the newest lines of the journal, oldest first; at most maxLines.
	Lines []Line
	Strip Strip
	// Timeline is what happened in the run and in the cluster.
	Timeline Timeline
	// BGP is the graph of Calico's sessions; nil if there is none.
	BGP *Sessions
}

// maxLines bounds State.Lines.
const maxLines = 300

// Mark is how far a step or a node is: a class of the page's style sheet.
type Mark string

// The marks. Watched is a node whose gate measures.
const (
	ToDo    Mark = "todo"
	Moving  Mark = "moving"
	Watched Mark = "watched"
	Done    Mark = "done"
	Failed  Mark = "failed"
	Undone  Mark = "undone"
)

// Node is a cell.
type Node struct {
	Name string `json:"n"`
	Wave string `json:"w"`
	Mark Mark   `json:"m"`
}

// Line is a record of the journal for people.
type Line struct {
	Seq  int       `json:"seq"`
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	Step string    `json:"step,omitempty"`
	// Minor lines are single actions. Bad ones are failures, rollbacks and pauses.
	Minor bool `json:"minor,omitempty"`
	Bad   bool `json:"bad,omitempty"`
}

// Now is what the page shows at one look.
type Now struct {
	// Tone is "good", "fair", "bad", or "none" where nothing is known; Loss is the sentence about losses at this
	// moment.
	Tone string `json:"tone"`
	Loss string `json:"loss"`
	// Remarks qualify it, one sentence each.
	Remarks []string `json:"remarks,omitempty"`
	Seen    run.Seen `json:"seen"`
	// Measured is when the last results came, by the clock of this machine.
	Measured time.Time `json:"measured,omitzero"`
	Classes  []Class   `json:"classes,omitempty"`

	// Stand is the state in a word or two, Cause why it is so, and Ways how it can continue.
	Stand string `json:"stand"`
	Cause string `json:"cause,omitempty"`
	Ways  string `json:"ways,omitempty"`
	Over  bool   `json:"over,omitempty"`
	// Withdrawn is true once the migration is not in the cluster any more.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Runner says which process runs it, Asked what a person has asked it to do, and Waits what it waits for.
	Runner string   `json:"runner,omitempty"`
	Asked  string   `json:"asked,omitempty"`
	Waits  []string `json:"waits,omitempty"`

	// Step is the index of the current step, -1 if there is none, and Action the action under way.
	Step   int    `json:"step"`
	Action string `json:"action,omitempty"`
	// Gate is the title of the gate that measures, or that failed last, and Missing its last answer.
	Gate      string    `json:"gate,omitempty"`
	Missing   string    `json:"missing,omitempty"`
	Begun     time.Time `json:"begun,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	Left      string    `json:"left,omitempty"`
	DoneSteps int       `json:"doneSteps"`
	DoneNodes int       `json:"doneNodes"`

	// Since is when the API server was last read, if it cannot be read now, and Why the error.
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why,omitempty"`
}

// Class sums up the paths of one class and expectation. Round trips are of the time since the results before, in
// microseconds.
type Class struct {
	Name    string  `json:"name"`
	Denied  bool    `json:"denied,omitempty"`
	Paths   int     `json:"paths"`
	Sent    int64   `json:"sent"`
	Lost    int64   `json:"lost"`
	Leaked  int64   `json:"leaked"`
	Longest float64 `json:"longestMillis"`
	P50     int64   `json:"p50"`
	P99     int64   `json:"p99"`
}

// Delta leads from one State to the next. A list holds what has changed in it, with its index.
type Delta struct {
	// Full means that the viewer forgets what it has: the first delta, or one after a cut.
	Full  bool       `json:"full,omitempty"`
	Now   *Now       `json:"now,omitempty"`
	Nodes []NodeAt   `json:"nodes,omitempty"`
	Steps []StepAt   `json:"steps,omitempty"`
	Lines []Line     `json:"lines,omitempty"`
	Strip *StripHead `json:"strip,omitempty"`
	Cells []Cell     `json:"cells,omitempty"`
	BGP   *Sessions  `json:"bgp,omitempty"`

	Timeline *TimelineDelta `json:"timeline,omitempty"`
}

// NodeAt is a node and its index.
type NodeAt struct {
	I int `json:"i"`
	Node
}

// StepAt is a step's mark and its index.
type StepAt struct {
	I int  `json:"i"`
	M Mark `json:"m"`
}

// Empty reports whether a delta changes nothing.
func (d Delta) Empty() bool {
	return d.Now == nil && len(d.Nodes)+len(d.Steps)+len(d.Lines)+len(d.Cells) == 0 && d.Strip == nil && d.BGP == nil &&
		d.Timeline == nil
}

// Diff is the delta from one state to another. From no state at all, it is full.
func Diff(before *State, after *State) Delta {
	d := Delta{Full: before == nil}
	if before == nil {
		before = &State{}
	}
	if d.Full || !equal(before.Now, after.Now) {
		now := after.Now
		d.Now = &now
	}
	for i, node := range after.Nodes {
		if i >= len(before.Nodes) || before.Nodes[i] != node {
			d.Nodes = append(d.Nodes, NodeAt{i, node})
		}
	}
	for i, mark := range after.Steps {
		if i >= len(before.Steps) || before.Steps[i] != mark {
			d.Steps = append(d.Steps, StepAt{i, mark})
		}
	}
	seen := 0
	if n := len(before.Lines); n > 0 {
		seen = before.Lines[n-1].Seq
	}
	at, _ := slices.BinarySearchFunc(after.Lines, seen+1, func(l Line, seq int) int { return l.Seq - seq })
	d.Lines = after.Lines[at:]
	d.Strip, d.Cells = after.Strip.since(before.Strip)
	d.Timeline = after.Timeline.since(before.Timeline)
	if after.BGP != before.BGP {
		d.BGP = after.BGP
	}
	return d
}

// Apply is what a viewer does with a delta; the page's script does the same.
func (s State) Apply(d Delta) State {
	if d.Full {
		s = State{}
	}
	if d.Now != nil {
		s.Now = *d.Now
	}
	s.Nodes, s.Steps = slices.Clone(s.Nodes), slices.Clone(s.Steps)
	for _, one := range d.Nodes {
		s.Nodes = put(s.Nodes, one.I, one.Node)
	}
	for _, one := range d.Steps {
		s.Steps = put(s.Steps, one.I, one.M)
	}
	s.Lines = newest(append(slices.Clone(s.Lines), d.Lines...))
	s.Strip = s.Strip.apply(d.Strip, d.Cells)
	s.Timeline = s.Timeline.apply(d.Timeline)
	if d.BGP != nil {
		s.BGP = d.BGP
	}
	return s
}

func put[T any](list []T, i int, value T) []T {
	if i == len(list) {
		return append(list, value)
	}
	list[i] = value
	return list
}

func newest(lines []Line) []Line { return lines[max(len(lines)-maxLines, 0):] }

// equal compares what viewers would get.
func equal(a, b Now) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}
