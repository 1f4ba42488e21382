package report

import (
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Gap is an interval in which one path did not do what was expected, placed in the run.
type Gap struct {
	Path   string    `json:"path"`
	Class  string    `json:"class"`
	Source string    `json:"source"`
	Target string    `json:"target"`
	From   time.Time `json:"from"`
	Millis float64   `json:"millis"`
	Probes int64     `json:"probes"`
	// Cause is the error of the first of them; empty if there was just no answer.
	Cause string `json:"cause,omitempty"`
	// Denied is true if it is an answer on a path that policy must block.
	Denied bool `json:"denied,omitempty"`
	// Open is true when it had not ended in the last report.
	Open bool `json:"open,omitempty"`
	// Step is where in the run it began: a step's id, or "rollback of" it, "before the run",
	// "between steps", "while paused", "after the run".
	Step string `json:"step"`
	// Undoing is the id of the step whose rollback it began in.
	Undoing string `json:"-"`

	// Second has the answers of the path's second responder meanwhile.
	Second v1alpha1.Second `json:"second,omitzero"`
}

// Incident is all gaps of one step together.
type Incident struct {
	Step   string    `json:"step"`
	First  time.Time `json:"first"`
	Gaps   int       `json:"gaps"`
	Paths  int       `json:"paths"`
	Lost   int64     `json:"lost"`
	Leaked int64     `json:"leaked"`
	// LongestMillis is of paths that should answer; LongestLeakMillis of those that should not.
	LongestMillis     float64 `json:"longestMillis"`
	LongestLeakMillis float64 `json:"longestLeakMillis,omitempty"`
}

// Tally sums up paths.
type Tally struct {
	Paths  int     `json:"paths"`
	Sent   int64   `json:"sent"`
	Lost   int64   `json:"lost"`
	Leaked int64   `json:"leaked"`
	Gaps   int     `json:"gaps"`
	Worst  float64 `json:"longestGapMillis"`
}

// Cell is one square of the path matrix: all paths between two ends, in one direction.
type Cell struct {
	Source v1alpha1.Endpoint `json:"source"`
	Target v1alpha1.Endpoint `json:"target"`
	Tally
}

// Class sums up paths of one class and expectation.
type Class struct {
	Name   string `json:"name"`
	Denied bool   `json:"denied,omitempty"`
	Tally
	P99 float64 `json:"p99GapMillis"`
	// RTTMicros are round trips in microseconds: the median path's p50, the worst path's p99, the maximum.
	RTTMicros [3]int64 `json:"rttMicros"`
}

// Node sums up one node; its tally is over paths that begin or end on it.
type Node struct {
	Name string `json:"name"`
	Wave string `json:"wave,omitempty"`
	// State is the state of the node's steps; Begin and End bound them.
	State State     `json:"state"`
	Begin time.Time `json:"begin,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Reported is true when at least one probe report came from it.
	Reported bool `json:"reported"`
	Tally
	// Stalls counts the times in which its prober stalled, and so measured nothing.
	Stalls             int     `json:"stalls"`
	LongestStallMillis float64 `json:"longestStallMillis"`
	// Excused counts answers that its prober read after their timeout for that reason.
	Excused       int64 `json:"excused,omitempty"`
	ResidueBefore int   `json:"residueBefore"`
	ResidueAfter  int   `json:"residueAfter"`
	// Inventoried is true when there is an inventory after the clean-up.
	Inventoried bool `json:"inventoried"`
}

// Gate is one question to the measurements and its answer.
type Gate struct {
	Step   string    `json:"step"`
	Asked  time.Time `json:"asked,omitzero"`
	Answer time.Time `json:"answered,omitzero"`
	// Pending is true when there is no answer in the journal.
	Pending bool     `json:"pending,omitempty"`
	Pass    bool     `json:"pass"`
	Reason  string   `json:"reason"`
	Paths   int      `json:"paths"`
	Sent    int64    `json:"sent"`
	Lost    int64    `json:"lost"`
	Leaked  int64    `json:"leaked"`
	Worst   float64  `json:"longestGapMillis"`
	Bad     []string `json:"bad,omitempty"`
}

// Residue is the source's residue, before and after the clean-up.
type Residue struct {
	Before int `json:"before"`
	After  int `json:"after"`
	// Rules is true if a rollout moved rules to another data plane: every node proved that none was left.
	Rules bool `json:"rules,omitempty"`
	// NodesBefore and NodesAfter count inventories; NodesWithout lists nodes lacking the second one.
	NodesBefore  int           `json:"nodesBefore"`
	NodesAfter   int           `json:"nodesAfter"`
	NodesWithout []string      `json:"nodesWithout,omitempty"`
	Items        []ResidueItem `json:"items"`
}

// ResidueItem is one item and the nodes that have it.
type ResidueItem struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Before and After count the nodes it is on; Left names those that still have it.
	Before int      `json:"before"`
	After  int      `json:"after"`
	Left   []string `json:"left,omitempty"`
}

// Entry is one line of the journal, without the states of objects, which may be confidential.
type Entry struct {
	Seq    int       `json:"seq"`
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Step   string    `json:"step,omitempty"`
	Action string    `json:"action,omitempty"`
	// Text is the action's title, the gate's reason, or another remark.
	Text   string `json:"text,omitempty"`
	Undo   bool   `json:"undo,omitempty"`
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
	By     string `json:"by,omitempty"`
	// Bad marks lines that a reader looks for: failures, pauses, rollbacks, gates that did not pass.
	Bad bool `json:"bad,omitempty"`
}
