// Package engine is the deterministic state machine of a run: it replays a journal, takes the next action, writes
// the intent, observes, acts, writes the outcome, evaluates the gates, and continues, pauses, or rolls back. It
// owns the interfaces of everything that it needs from outside.
package engine

import (
	"encoding/json"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/step"
)

// Event is the kind of a record.
type Event string

// The events of a journal, in the order in which they can come.
const (
	Started     Event = "started" // first record: Data holds Start
	StepBegan   Event = "step-began"
	Intended    Event = "intended" // before an action: Before and Inverse as observed
	Acted       Event = "acted"    // after it: Result
	GateAsked   Event = "gate-asked"
	GateAnswer  Event = "gate-answer" // Verdict
	StepDone    Event = "step-done"
	Paused      Event = "paused"
	Resumed     Event = "resumed"
	RollingBack Event = "rolling-back" // Error says why; Result is "asked" or "failed"
	StepUndone  Event = "step-undone"
	// TakingBack undoes one step that is marked Alone, after a failure: Error says which. Then the run needs a person.
	TakingBack Event = "taking-back"
	Finished   Event = "finished" // Result "done", "rolled-back" or "needs-person"
	// Marked is a line that a person puts on the timeline: Data holds MarkText. It changes nothing else.
	Marked Event = "marked"
)

// The values of a record's Result.
const (
	ResultDone    = "done"
	ResultAlready = "already" // nothing to do
	ResultFailed  = "failed"
	// ResultAsked marks a rollback that the operator requested.
	ResultAsked = "asked"
	// ResultOutsideWindow and ResultFrozen mark a pause between two steps that ends by itself.
	ResultOutsideWindow = "outside-window"
	ResultFrozen        = "frozen"
	// ResultWindowEnded marks the pause at the end of a window of the plan (step.Step.Stop). It ends when a person
	// continues the run.
	ResultWindowEnded = "window-ended"
	// ResultMeasuring marks a pause in which paths are measured until the user says that the changes of others have
	// ended. Other pauses have no result.
	ResultMeasuring = "measuring"
	// ResultRolledBack and ResultNeedsPerson are ends of a run, as is ResultDone.
	ResultRolledBack  = "rolled-back"
	ResultNeedsPerson = "needs-person"
)

// Record is one line of the journal. It is never changed once written.
type Record struct {
	// Seq counts from 1 without gaps.
	Seq    int       `json:"seq"`
	At     time.Time `json:"at"`
	Event  Event     `json:"event"`
	Step   string    `json:"step,omitempty"`
	Action string    `json:"action,omitempty"`
	// Undo is true for the actions of a rollback.
	Undo bool `json:"undo,omitempty"`
	// Result is "done", "already" (nothing to do) or "failed"; of a pause, why it ends by itself, ResultWindowEnded or
	// ResultMeasuring.
	Result  string          `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
	Before  json.RawMessage `json:"before,omitempty"`
	Inverse *step.Action    `json:"inverse,omitempty"`
	Verdict *Verdict        `json:"verdict,omitempty"`
	// Data is the answer of an action. Of those that failed, only step.VerbAdopt and step.Evict have one: the pods that
	// were moved or evicted before the failure.
	Data json.RawMessage `json:"data,omitempty"`
	// By says who ran the engine: user@host.
	By string `json:"by,omitempty"`
	// Epoch is that of the cluster's lock, which the writer held. It never decreases from one record to the next.
	Epoch int64 `json:"epoch,omitempty"`
	// Chain binds the record to all before it, and the first one to the plan (Link).
	Chain string `json:"chain,omitempty"`
}

// Start is the data of the first record: decisions that a resumed run must not make again.
type Start struct {
	Plan    string     `json:"plan"` // hash
	Theseus string     `json:"theseus"`
	Flags   plan.Flags `json:"flags,omitzero"`
	// Steps is how many steps the plan has, so that the journal alone shows the progress.
	Steps int `json:"steps,omitempty"`
}

// Verdict is a gate's answer. No evidence is a failure, never a pass.
type Verdict struct {
	Pass bool `json:"pass"`
	// Reason is one sentence in plain words, with the figures.
	Reason string `json:"reason"`
	// Paths, Sent, Lost, Leaked and LongestGapMillis sum up the evidence.
	Paths            int     `json:"paths"`
	Sent             int64   `json:"sent"`
	Lost             int64   `json:"lost"`
	Leaked           int64   `json:"leaked"`
	LongestGapMillis float64 `json:"longestGapMillis"`
	// Bad names the worst paths, at most ten.
	Bad []string `json:"bad,omitempty"`
	// Signals are what the user's own signals said: of one that did not hold, why, and of any other its last answer.
	Signals []signal.Answer `json:"signals,omitempty"`
	// Lossy is what a baseline lost that may lose probes, and Against how the result compares with it.
	Lossy   *loss.Lossy   `json:"lossy,omitempty"`
	Against *loss.Against `json:"against,omitempty"`
}
