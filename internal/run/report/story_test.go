package report

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// story is what a report says where status says a phase: the outcome, and a word of the title.
var story = map[engine.Phase]struct {
	outcome Outcome
	title   string
}{
	engine.PhaseNew:         {NotStarted, "Nothing was run"},
	engine.PhaseRunning:     {Running, "Not finished; "},
	engine.PhasePaused:      {Paused, "Paused; "},
	engine.PhaseRollingBack: {RollingBack, "Rolling back; "},
	engine.PhaseRolledBack:  {RolledBack, "Rolled back; "},
	engine.PhaseNeedsPerson: {NeedsPerson, "needs a person; "},
	engine.PhaseDone:        {Done, "Done, but"},
}

// TestOneStory writes every journal of two steps that the engine accepts, up to seven records, and compares the report
// with what `theseus status` says of it: how it ended, why it stopped, and which ways lead on.
func TestOneStory(t *testing.T) {
	p := &plan.Plan{Steps: []step.Step{{ID: "first"}, {ID: "last", NoReturn: true}}}
	seen := map[engine.Phase]int{}
	var walk func(state engine.State, records []engine.Record)
	walk = func(state engine.State, records []engine.Record) {
		seen[state.Phase]++
		tell(t, p, state, records)
		if len(records) == 7 || t.Failed() {
			return
		}
		for _, next := range events() {
			next.Seq, next.At = state.Seq+1, time.Unix(int64(state.Seq), 0)
			after, err := engine.Replay(append(records, next))
			if err == nil {
				walk(after, append(records[:len(records):len(records)], next))
			}
		}
	}
	walk(engine.State{Phase: engine.PhaseNew}, nil)
	for phase := range story {
		if seen[phase] == 0 {
			t.Errorf("no journal ends in the phase %s", phase)
		}
	}
}

// tell compares the report of a journal with the judgement of the same journal.
func tell(t *testing.T, p *plan.Plan, state engine.State, records []engine.Record) {
	t.Helper()
	said, want := engine.Judge(p.Steps, state, false), story[state.Phase]
	if state.Back != "" && state.Phase == engine.PhaseRunning {
		want = story[engine.PhaseNeedsPerson] // it stops for one, however the step goes back
	}
	got := Build(Input{Plan: p, Records: records})
	why := state.Cause
	if state.Phase == engine.PhaseDone {
		why = ""
	}
	if ways := said.Ways; got.Run.Outcome != want.outcome || !strings.Contains(got.Verdict.Title, want.title) ||
		got.Verdict.Why != why || len(records) > 0 && got.Verdict.Next != ways {
		text, _ := json.Marshal(records)
		t.Errorf("status: %s, because %q, %q; report: %s, %q, because %q, %q\n%s",
			said.Word, why, ways, got.Run.Outcome, got.Verdict.Title, got.Verdict.Why, got.Verdict.Next, text)
	}
}

// events are the records that a run of two steps may write next, in any state.
func events() []engine.Record {
	all := []engine.Record{
		{Event: engine.Started, Data: json.RawMessage(`{}`)},
		{Event: engine.Paused, Error: "asked to pause"},
		{Event: engine.Resumed},
		{Event: engine.RollingBack, Error: "a gate failed"},
		{Event: engine.Finished, Result: engine.ResultDone},
		{Event: engine.Finished, Result: engine.ResultRolledBack},
		{Event: engine.Finished, Result: engine.ResultNeedsPerson, Error: "it cannot be told"},
	}
	for _, id := range []string{"first", "last"} {
		all = append(all, engine.Record{Event: engine.StepBegan, Step: id},
			engine.Record{Event: engine.StepDone, Step: id}, engine.Record{Event: engine.StepUndone, Step: id},
			engine.Record{Event: engine.TakingBack, Step: id, Error: "the step failed"})
	}
	return all
}
