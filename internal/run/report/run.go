package report

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// history is the journal read once: the run, every step's result, the gates, and the lines for people.
type history struct {
	run     Run
	by      []string
	theseus string
	planned string // the plan's hash in the first record
	why     string
	next    string // how the run can continue
	steps   []Step
	index   map[string]int
	titles  map[string]string // of actions, by id
	gates   []Gate
	journal []Entry
	undoing Span
	backAt  time.Time // when the undo of the next undone step began
	awaits  string    // the step during which others change the cluster
	undone  []undone
}

// undone is the time in which one step was undone.
type undone struct {
	step string
	span Span
}

// read replays records over the plan's steps. Steps that only the journal knows are added at the end.
func read(p *plan.Plan, records []engine.Record) *history {
	h := &history{index: map[string]int{}, titles: map[string]string{}, run: Run{Outcome: NotStarted}}
	if p != nil {
		for i := range p.Steps {
			h.plan(&p.Steps[i])
		}
		h.run.EstimateMillis = time.Duration(p.Estimate).Milliseconds()
	}
	h.run.StepsTotal = len(h.steps)
	for i := range records {
		h.take(&records[i])
	}
	if n := len(records); n > 0 {
		h.run.Begin, h.run.End = records[0].At, records[n-1].At
		h.run.Millis = h.run.End.Sub(h.run.Begin).Milliseconds()
	}
	h.stand(p, records)
	h.close()
	return h
}

// stand takes the outcome and its cause from the engine's own reading of the journal, as status, hints and refusals do.
// If the engine refuses the journal, the records are read one by one.
func (h *history) stand(p *plan.Plan, records []engine.Record) {
	state, err := engine.Replay(records)
	if err != nil || len(records) == 0 {
		return
	}
	h.run.Outcome, h.why = outcomeOf(state), state.Cause
	if p != nil {
		h.next = engine.Judge(p.Steps, state, false).Ways
	}
}

// outcomeOf is a phase as the report's outcome. After a step was undone alone, the run always needs a person.
func outcomeOf(state engine.State) Outcome {
	switch {
	case state.Phase == engine.PhaseDone:
		return Done
	case state.Phase == engine.PhaseRolledBack:
		return RolledBack
	case state.Phase == engine.PhaseNeedsPerson, state.Back != "" && state.Phase != engine.PhasePaused:
		return NeedsPerson
	case state.Measures():
		return Measuring
	case state.Phase == engine.PhasePaused:
		return Paused
	case state.Undoing:
		return RollingBack
	}
	return Running
}

// plan adds a planned step, with titles for its actions and their undo.
func (h *history) plan(s *step.Step) {
	run := Step{ID: s.ID, Title: s.Title, Why: s.Why, Group: s.Group, Node: s.Node,
		Nodes: s.Nodes(), NoReturn: s.NoReturn, State: StepNotReached}
	for _, action := range s.Actions {
		h.titles[action.ID] = action.Title
		run.Actions = append(run.Actions, Action{Title: action.Title})
	}
	for _, action := range s.Undo {
		h.titles[action.ID] = action.Title
		run.Undo = append(run.Undo, action.Title)
	}
	if s.Gate != nil {
		run.Gate = s.Gate.Title
	}
	if s.Awaits() {
		h.awaits = s.ID
	}
	h.index[s.ID] = len(h.steps)
	h.steps = append(h.steps, run)
}

// at finds a step by id, and adds one that the plan does not have, as a group of its own.
func (h *history) at(id string) *Step {
	i, ok := h.index[id]
	if !ok {
		i = len(h.steps)
		h.index[id] = i
		h.steps = append(h.steps, Step{ID: id, Title: id, Group: id, State: StepNotReached})
	}
	return &h.steps[i]
}

func (h *history) take(r *engine.Record) {
	entry := Entry{Seq: r.Seq, At: r.At, Event: string(r.Event), Step: r.Step, Action: r.Action, Undo: r.Undo,
		Result: r.Result, Error: r.Error, By: r.By, Text: h.titles[r.Action],
		Bad: r.Error != "" || r.Result == "failed"}
	if r.Inverse != nil && h.titles[r.Inverse.ID] == "" {
		h.titles[r.Inverse.ID] = r.Inverse.Title
	}
	if r.By != "" && !slices.Contains(h.by, r.By) {
		h.by = append(h.by, r.By)
	}
	switch r.Event {
	case engine.Started:
		h.started(r)
	case engine.Marked:
		entry.Text = engine.MarkOf(*r)
	case engine.StepBegan, engine.StepDone, engine.StepUndone:
		h.moved(r)
	case engine.Acted:
		h.acted(r)
	case engine.GateAsked, engine.GateAnswer:
		h.gate(r, &entry)
	case engine.Paused, engine.Resumed, engine.RollingBack, engine.TakingBack, engine.Finished:
		h.turned(r, &entry)
	}
	h.journal = append(h.journal, entry)
}

func (h *history) started(r *engine.Record) {
	h.run.Outcome = Running
	var start engine.Start
	if json.Unmarshal(r.Data, &start) == nil {
		h.planned, h.theseus = start.Plan, start.Theseus
	}
}

func (h *history) moved(r *engine.Record) {
	s := h.at(r.Step)
	switch r.Event {
	case engine.StepBegan:
		if s.Begin.IsZero() {
			s.Begin = r.At
		}
		s.State = StepRunning
		if s.NoReturn && h.run.NoReturn.IsZero() {
			h.run.NoReturn = r.At
		}
	case engine.StepDone:
		s.State, s.End, s.Failure = StepDone, r.At, ""
	case engine.StepUndone:
		s.State, s.Undone = StepUndone, r.At
		if s.End.IsZero() && !h.undoing.From.IsZero() {
			s.End = h.undoing.From
		}
		h.undone = append(h.undone, undone{r.Step, Span{h.backAt, r.At}})
		h.backAt = r.At
	}
}

// acted notes the result of an action of a step; results of a rollback stay in the journal only.
func (h *history) acted(r *engine.Record) {
	if r.Undo {
		return
	}
	s := h.at(r.Step)
	if r.Result == "failed" {
		s.State, s.End, s.Failure = StepFailed, r.At, r.Error
	}
	title := h.titles[r.Action]
	for i := range s.Actions {
		if s.Actions[i].Title == title {
			s.Actions[i].Result, s.Actions[i].Error = r.Result, r.Error
		}
	}
}

func (h *history) gate(r *engine.Record, entry *Entry) {
	if r.Event == engine.GateAsked {
		h.gates = append(h.gates, Gate{Step: r.Step, Asked: r.At, Pending: true, Reason: "no answer in the journal"})
		return
	}
	if n := len(h.gates); n == 0 || !h.gates[n-1].Pending || h.gates[n-1].Step != r.Step {
		h.gates = append(h.gates, Gate{Step: r.Step})
	}
	gate := &h.gates[len(h.gates)-1]
	gate.Answer, gate.Pending = r.At, false
	if r.Verdict == nil {
		gate.Reason = "the journal has no verdict: " + r.Error
		entry.Bad = true
		return
	}
	v := r.Verdict
	gate.Pass, gate.Reason, gate.Paths, gate.Sent = v.Pass, v.Reason, v.Paths, v.Sent
	gate.Lost, gate.Leaked, gate.Worst, gate.Bad = v.Lost, v.Leaked, v.LongestGapMillis, v.Bad
	entry.Text, entry.Bad = v.Reason, !v.Pass
	if !v.Pass {
		s := h.at(r.Step)
		s.State, s.End, s.Failure = StepFailed, r.At, v.Reason
	}
}

// turned follows the run from one outcome to the next.
func (h *history) turned(r *engine.Record, entry *Entry) {
	pauses := h.run.Pauses
	if n := len(pauses); n > 0 && pauses[n-1].To.IsZero() {
		pauses[n-1].To = r.At
	}
	switch r.Event {
	case engine.Paused:
		if r.Result == engine.ResultMeasuring && h.awaits != "" { // the step goes on without a process
			if s := h.at(h.awaits); s.Begin.IsZero() {
				s.Begin, s.State = r.At, StepRunning
			}
			h.run.Outcome = Measuring
			return
		}
		h.run.Pauses = append(pauses, Span{From: r.At})
		h.run.Outcome, h.why, entry.Bad = Paused, r.Error, r.Result == "" // else it ends by itself
	case engine.Resumed:
		h.run.Outcome, h.why = Running, ""
		h.run.Resumed++
		if !h.undoing.From.IsZero() {
			h.run.Outcome = RollingBack
		}
	case engine.RollingBack:
		if h.undoing.From.IsZero() {
			h.undoing.From, h.backAt = r.At, r.At
		}
		h.run.Outcome, h.why, entry.Bad = RollingBack, r.Error, true
	case engine.TakingBack:
		h.run.Outcome, h.why, h.backAt, entry.Bad = NeedsPerson, r.Error, r.At, true
	case engine.Finished:
		h.finished(r)
		entry.Bad = h.run.Outcome != Done
	}
}

func (h *history) finished(r *engine.Record) {
	switch r.Result {
	case "done":
		h.run.Outcome = Done
	case "rolled-back":
		h.run.Outcome = RolledBack
	default:
		h.run.Outcome = NeedsPerson
	}
	if r.Error != "" {
		h.why = r.Error
	}
}

// close ends spans that the journal left open, at its last record.
func (h *history) close() {
	if n := len(h.run.Pauses); n > 0 && h.run.Pauses[n-1].To.IsZero() {
		h.run.Pauses[n-1].To = h.run.End
	}
	if !h.undoing.From.IsZero() {
		h.run.Rollback = &Span{h.undoing.From, h.run.End}
	}
	for i := range h.steps {
		if h.steps[i].State == StepDone {
			h.run.StepsDone++
		}
	}
}
