package report

import (
	"time"

	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Kind is the kind of a serialised report.
const Kind = "Report"

// Level is how good or bad a verdict is.
type Level string

// The levels of a verdict, best first.
const (
	// Good: done, measured, and nothing lost, answered against policy or left behind.
	Good Level = "good"
	// Partial: as Good, but no path to the outside of the cluster was measured.
	Partial Level = "partial"
	// Fair: done, and something was lost, but every gap stayed within the limit of the gates.
	Fair Level = "fair"
	// Stopped: paused, still running, or rolled back, and no gap exceeded the limit.
	Stopped Level = "stopped"
	// Unknown: done, but something was not measured.
	Unknown Level = "unknown"
	// Bad: requests failed, a gap exceeded the limit, denied traffic got through, or the run needs a person.
	Bad Level = "bad"
)

// Outcome is how the run ended.
type Outcome string

// The outcomes.
const (
	NotStarted Outcome = "not-started"
	Running    Outcome = "running"
	Paused     Outcome = "paused"
	// Measuring: others change the cluster, and the run measures.
	Measuring   Outcome = "measuring"
	RollingBack Outcome = "rolling-back"
	RolledBack  Outcome = "rolled-back"
	NeedsPerson Outcome = "needs-person"
	Done        Outcome = "done"
)

// Model is the report as data. The page computes nothing.
type Model struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	MadeAt     time.Time `json:"madeAt,omitzero"`
	Change     Change    `json:"change"`
	Verdict    Verdict   `json:"verdict"`
	Run        Run       `json:"run"`
	Totals     Totals    `json:"totals"`
	// Limit is the longest gap in ms that the gates allowed; 0 if none is known: then every gap exceeds it.
	Limit     float64    `json:"limitMillis"`
	Groups    []Group    `json:"groups"`
	Steps     []Step     `json:"steps"`
	Gaps      []Gap      `json:"gaps"`
	Incidents []Incident `json:"incidents"`
	Moments   []Moment   `json:"moments,omitempty"`
	Cells     []Cell     `json:"cells"`
	Classes   []Class    `json:"classes"`
	// Elsewhere is what other machines measured during a guard.
	Elsewhere []FromElsewhere   `json:"elsewhere,omitempty"`
	Nodes     []Node            `json:"nodes"`
	Workloads []WorkloadOutcome `json:"workloads"`
	// Moves are the pods that were moved while they ran, in order, and Adopted sums them up.
	Moves   []Move    `json:"moves,omitempty"`
	Adopted *Adopted  `json:"adopted,omitempty"`
	Traffic []Traffic `json:"traffic"`
	// Load is nil if no load was put on the network before or after the change.
	Load    *Load   `json:"load,omitempty"`
	Gates   []Gate  `json:"gates"`
	Residue Residue `json:"residue"`
	Journal []Entry `json:"journal"`
	// PartRestarts are the restarts of Theseus' own agents and probers.
	PartRestarts []PartRestart `json:"partRestarts,omitempty"`
	// NewPods are the pods that a guard made to see what new pods get; nil if it made none.
	NewPods *NewPods `json:"newPods,omitempty"`
	// Samples are the connections between pods of the user that a guard sampled; nil if it sampled none.
	Samples *Samples `json:"samples,omitempty"`
	// Head stands above the report on the page; nil for none.
	Head *Head `json:"-"`
	// BGP has the graphs of Input.BGP, for the page.
	BGP []draw.Row `json:"-"`

	history *history
	// compared is true if losses are compared with those of a baseline that may lose probes (kind.Guard.LossyBefore).
	// accepted is then what the baseline lost, acceptedOf the same by parts of the network (loss.Contrast), and worse
	// is true if it is proven that more was lost since.
	compared, worse bool
	accepted        engine.Verdict
	acceptedOf      map[string]loss.Counts
	// keeps is true if the plan removes no network, so that no residue is looked for.
	keeps bool
}

// Head is what is said above a report that is part of something else, such as of a rehearsal.
type Head struct {
	Word   string
	Level  Level
	Title  string
	Lines  []string
	Tables []HeadTable
	// Below is the heading of the report itself.
	Below string
}

// HeadTable is a table of a Head; the names of its columns may be empty.
type HeadTable struct {
	Title string
	Head  []string
	Rows  [][]string
}

// Change is the planned change, its cluster and its plan.
type Change struct {
	Name   string `json:"name,omitempty"`
	Source string `json:"source,omitempty"`
	Target string `json:"target,omitempty"`
	// Flag is the flag that was rolled out, if the change was a rollout.
	Flag       string `json:"flag,omitempty"`
	Strategy   string `json:"strategy,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Cluster    string `json:"cluster,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	PlanHash   string `json:"planHash,omitempty"`
	Theseus    string `json:"theseus,omitempty"`
	// By lists everyone who ran the engine.
	By []string `json:"by,omitempty"`
	// Accepted are the findings that were accepted although they warn or block.
	Accepted []Accepted `json:"accepted,omitempty"`
}

// Accepted is a finding with the user's reason.
type Accepted struct {
	ID      string `json:"id"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
}

// Verdict is the report in one line.
type Verdict struct {
	Level Level `json:"level"`
	// Word is the level in words, for the page.
	Word string `json:"-"`
	// Title is a few words, Line the whole sentence with the figures.
	Title string `json:"title"`
	Line  string `json:"line"`
	// Outside says whether paths between the cluster and its outside were measured: "measured" or "not measured".
	Outside string `json:"outside"`
	// Uncovered are the kinds of paths that no run measures. The verdict does not cover them (docs/paths.md).
	Uncovered []string `json:"uncovered,omitempty"`
	// Next says the same as `theseus status`: which process runs the change, or how it can continue. It is empty if the
	// run has ended.
	Next string `json:"next,omitempty"`
	// Why says what stopped the run, if anything did.
	Why string `json:"why,omitempty"`
	// Missing lists what was not measured, one sentence each.
	Missing []string `json:"missing,omitempty"`
	// Notes are further remarks, one sentence each.
	Notes []string `json:"notes,omitempty"`
}

// Span is an interval of time.
type Span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Run is the journal summed up.
type Run struct {
	Outcome Outcome   `json:"outcome"`
	Begin   time.Time `json:"begin,omitzero"`
	End     time.Time `json:"end,omitzero"`
	// Millis is how long it took, pauses included; EstimateMillis what the plan said.
	Millis         int64 `json:"millis"`
	EstimateMillis int64 `json:"estimateMillis,omitempty"`
	StepsDone      int   `json:"stepsDone"`
	StepsTotal     int   `json:"stepsTotal"`
	// Pauses are the times in which the run was paused; Rollback is the time of the rollback, if there was one.
	Pauses   []Span `json:"pauses,omitempty"`
	Rollback *Span  `json:"rollback,omitempty"`
	// Resumed is how often a run was resumed: after a pause or a crash, or by another person.
	Resumed int `json:"resumed,omitempty"`
	// NoReturn is when the first step that cannot be undone began.
	NoReturn time.Time `json:"noReturn,omitzero"`
	// Measured are the times in which at least one path was probed.
	Measured []Span `json:"measured,omitempty"`
}

// Totals are the figures of the verdict.
type Totals struct {
	Nodes         int   `json:"nodes"`
	NodesSwitched int   `json:"nodesSwitched"`
	Pods          int   `json:"pods"`
	Evicted       int   `json:"evicted"`
	Restarts      int   `json:"restarts"`
	Requests      int64 `json:"requests"`
	Failed        int64 `json:"failed"`
	// Paths counts measured paths, Unmeasured planned paths without a result.
	Paths      int   `json:"paths"`
	Unmeasured int   `json:"unmeasured"`
	Sent       int64 `json:"sent"`
	Lost       int64 `json:"lost"`
	// OutsidePaths are those of Paths that leave the cluster, OutsideSent and OutsideLost their probes.
	OutsidePaths int   `json:"outsidePaths"`
	OutsideSent  int64 `json:"outsideSent"`
	OutsideLost  int64 `json:"outsideLost"`
	// Excused counts unanswered probes that are not in Lost, since all possible responders were stalled.
	Excused int64 `json:"excused,omitempty"`
	// Denied counts paths that policy must block, DeniedSent their probes; Leaked counts the answers, to
	// probes and to traffic.
	Denied     int   `json:"denied"`
	DeniedSent int64 `json:"deniedSent"`
	Leaked     int64 `json:"leaked"`
	Gaps       int   `json:"gaps"`
	// LongestGapMillis is over paths and traffic; ProbeGapMillis over paths alone.
	LongestGapMillis float64 `json:"longestGapMillis"`
	ProbeGapMillis   float64 `json:"probeGapMillis"`
}

// Group is a row of the timeline: a phase or a wave.
type Group struct {
	Name  string    `json:"name"`
	Nodes int       `json:"nodes"`
	Begin time.Time `json:"begin,omitzero"`
	End   time.Time `json:"end,omitzero"`
	State State     `json:"state"`
	// Steps are indexes into Model.Steps.
	Steps []int `json:"steps"`
}

// State is how far a step got.
type State string

// The states of a step.
const (
	StepNotReached State = "not reached"
	StepRunning    State = "running"
	StepFailed     State = "failed"
	StepDone       State = "done"
	StepUndone     State = "undone"
)

// Step is one step of the plan and its result.
type Step struct {
	ID       string    `json:"id"`
	Title    string    `json:"title"`
	Why      string    `json:"why,omitempty"`
	Group    string    `json:"group"`
	Node     string    `json:"node,omitempty"`
	Nodes    []string  `json:"nodes,omitempty"` // the one, or those whose pods are moved together
	State    State     `json:"state"`
	Begin    time.Time `json:"begin,omitzero"`
	End      time.Time `json:"end,omitzero"`
	Undone   time.Time `json:"undone,omitzero"`
	Actions  []Action  `json:"actions,omitempty"`
	Gate     string    `json:"gate,omitempty"`
	Undo     []string  `json:"undo,omitempty"`
	NoReturn bool      `json:"noReturn,omitempty"`
	Gaps     int       `json:"gaps,omitempty"`
	// Failure says what went wrong in it, also if it was undone afterwards.
	Failure string `json:"failure,omitempty"`
}

// Action is one action of a step and its result: "done", "already", "failed", or empty.
type Action struct {
	Title  string `json:"title"`
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}
