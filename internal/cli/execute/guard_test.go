package execute

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	guardplan "github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// planOf is a guard's plan, as far as its result goes.
func planOf(guarded kind.Guard) *plan.Plan {
	change := step.Step{ID: guardplan.StepCommand, Actions: []step.Action{{Do: step.Command{}}}}
	if guarded.Others {
		change = step.Step{ID: guardplan.StepChange, Actions: []step.Action{{Do: step.Await{}}}}
	}
	return &plan.Plan{Guarded: &guarded,
		Steps: []step.Step{{ID: guardplan.StepProbes, Gate: &step.Gate{Baseline: true}}, change,
			{ID: guardplan.StepWatch, Gate: &step.Gate{Result: true}}}}
}

// journalOf is the journal of a guarded command, as far as its result goes.
func journalOf(t *testing.T, before, after engine.Verdict, ran result.Ran, watched result.Watched) []engine.Record {
	t.Helper()
	raw := func(value any) json.RawMessage {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	return []engine.Record{
		{Event: engine.Acted, Step: guardplan.StepProbes, Data: raw(map[string]int{"plans": 2})},
		{Event: engine.GateAnswer, Step: guardplan.StepProbes, Verdict: &before},
		{Event: engine.Acted, Step: guardplan.StepCommand, Data: raw(ran)},
		{Event: engine.Acted, Step: guardplan.StepWatch, Data: raw(watched)},
		{Event: engine.GateAnswer, Step: guardplan.StepWatch, Verdict: &after},
	}
}

// TestVerdict: the exit code and the words of a guard, by what its journal says.
func TestVerdict(t *testing.T) {
	good := engine.Verdict{Pass: true, Sent: 100, Reason: "100 probes on 4 paths, none lost"}
	lost := engine.Verdict{Sent: 100, Lost: 7, LongestGapMillis: 3000, Reason: "7 of 100 probes lost",
		Bad: []string{"a>b: 7 of 50 lost"}}
	flaky := engine.Verdict{Pass: true, Sent: 100, Lost: 2, LongestGapMillis: 40, Reason: "2 lost, which is allowed"}
	broken := engine.Verdict{Reason: "errors is 9",
		Signals: []signal.Answer{{Signal: "s", State: signal.Fails, Says: "errors is 9"}}}
	silent := []signal.Answer{{Signal: "s", State: signal.Unknown, Says: "no answer to errors"}}
	quiet := result.Watched{Quiet: true}
	done, stopped := engine.Outcome{End: engine.EndDone}, engine.Outcome{End: engine.EndStopped}
	stuck := engine.Outcome{End: engine.EndNeedsPerson, Cause: "a webhook; it is down", Hint: "repair it"}
	for name, test := range map[string]struct {
		outcome       engine.Outcome
		before, after engine.Verdict
		ran           result.Ran
		watched       result.Watched
		lossy         bool
		maxLost       int64
		interrupted   bool
		code          int
		says          string
	}{
		"good": {outcome: done, before: good, after: good, watched: quiet, says: "good: the command succeeded"},
		"a user's signal": {outcome: done, before: good, after: broken, watched: quiet, code: exit.Lost,
			says: "a signal failed since the baseline: errors is 9\n"},
		"a user's signal meanwhile": {outcome: done, before: good, after: good,
			ran: result.Ran{Code: 3, Signals: broken.Signals}, watched: quiet, code: exit.Lost, says: "a signal " +
				"failed since the baseline: errors is 9; and the command failed: it ended with exit code 3"},
		"a silent signal": {outcome: done, before: good, after: good, watched: result.Watched{Quiet: true,
			Signals: silent}, code: exit.Unproven, says: "not proven: no answer to errors"},
		"failed": {outcome: done, before: good, after: good, ran: result.Ran{Code: 3}, watched: quiet,
			code: exit.Failed, says: "exit code 3"},
		"a signal": {outcome: done, before: good, after: good, ran: result.Ran{Code: -1, Signal: "killed"},
			watched: quiet, code: exit.Failed, says: "(killed)"},
		"lost": {outcome: done, before: good, after: lost, watched: quiet, code: exit.Lost, says: "a>b: 7 of 50 lost"},
		"a new pod failed": {outcome: done, before: good, after: good, ran: result.Ran{NewPods: &result.NewPods{
			Failed: []result.NewPod{{Node: "b", Why: "FailedCreatePodSandBox: no plugin"}}, Failures: 1}},
			watched: quiet, code: exit.Lost, says: "FailedCreatePodSandBox: no plugin"},
		"lost and failed": {outcome: done, before: good, after: lost, ran: result.Ran{Code: 3}, watched: quiet,
			code: exit.Lost, says: "the command failed: it ended with exit code 3"},
		"lost and interrupted": {outcome: done, before: good, after: lost, watched: result.Watched{Interrupted: true},
			code: exit.Lost, says: "a loss is proven"},
		"leaked": {outcome: done, before: good, after: engine.Verdict{Leaked: 1, Reason: "1 got through"},
			watched: quiet, code: exit.Lost, says: "1 got through"},
		"allowed": {outcome: done, before: good, after: flaky, watched: quiet, maxLost: 2,
			says: "good: the command succeeded, and no more was lost than --max-lost allows: 2 lost"},
		"a long gap": {outcome: done, before: good, after: lost, watched: quiet, maxLost: 10,
			code: exit.Lost, says: "7 of 100"},
		"no evidence": {outcome: done, before: good, after: engine.Verdict{Reason: "no fresh evidence: b"},
			watched: quiet, code: exit.Unproven, says: "not proven: no fresh evidence: b"},
		"not quiet": {outcome: done, before: good, after: good, watched: result.Watched{Why: "b was silent"},
			code: exit.Unproven, says: "was not quiet when the watching ended: b was silent"},
		"interrupted": {outcome: done, before: good, after: good,
			ran: result.Ran{Code: -1, Signal: "interrupt", Interrupted: true}, watched: quiet, code: exit.Interrupted,
			says: "no loss is proven\n"},
		"unknown end": {outcome: done, before: good, after: good, ran: result.Ran{Unknown: true},
			watched: quiet, code: exit.Unproven, says: "its result is unknown"},
		"lossy, as before": {outcome: done, before: flaky,
			after: engine.Verdict{Sent: 900, Lost: 19, LongestGapMillis: 50}, watched: quiet, lossy: true,
			code: exit.Unproven, says: "2 of 100 probes lost before the change"},
		"lossy, worse": {outcome: done, before: flaky, after: lost, watched: quiet, lossy: true,
			code: exit.Lost, says: "a loss is proven"},
		"lossy, no more": {outcome: done, before: flaky, after: engine.Verdict{Pass: true, Sent: 900, Lost: 19,
			Against: &loss.Against{Harmless: true, Why: "2 % before, 2.1 % since"}}, watched: quiet, lossy: true,
			says: "good: the command succeeded, and the network lost probes before the change, and no more since " +
				"then: 2 % before, 2.1 % since\n"},
		"lossy, nothing since": {outcome: done, before: flaky, after: engine.Verdict{Pass: true, Sent: 900,
			Against: &loss.Against{Harmless: true}, Reason: "none lost"}, watched: quiet, lossy: true,
			says: "good: the command succeeded, and nothing was lost: none lost\n"},
		"lossy, more": {outcome: done, before: flaky, after: engine.Verdict{Pass: true, Sent: 900, Lost: 90,
			Against: &loss.Against{Proven: true, Why: "2 % before, 10 % since"}}, watched: quiet, lossy: true,
			code: exit.Lost, says: "a loss is proven: 2 % before, 10 % since\n"},
		"lossy, undecided": {outcome: done, before: flaky, after: engine.Verdict{Pass: true, Sent: 900, Lost: 25,
			Against: &loss.Against{Why: "2 % before, 3 % since", Needs: "it needs about --baseline 1m"}},
			lossy: true, code: exit.Unproven,
			says: "not proven: it needs about --baseline 1m (2 % before, 3 % since)\n"},
		"lossy, no more, and a hole": {outcome: done, before: flaky, after: engine.Verdict{Lost: 19,
			Reason: "a prober restarted", Against: &loss.Against{Harmless: true}}, watched: quiet, lossy: true,
			code: exit.Unproven, says: "not proven: a prober restarted\n"},
		"lossy, leaked": {outcome: done, before: flaky, after: engine.Verdict{Leaked: 1, Reason: "1 got through",
			Against: &loss.Against{Harmless: true}}, watched: quiet, lossy: true, code: exit.Lost,
			says: "1 got through"},
		"needs a person": {outcome: engine.Outcome{End: engine.EndNeedsPerson, Cause: "x"}, before: good,
			after: good, code: exit.NeedsPerson, says: "x"},
		"lost and stuck": {outcome: stuck, before: good, after: lost, watched: quiet, code: exit.Lost,
			says: "may still be there: needs-person: a webhook; it is down\nhint: repair it; "},
		"lost, cut cleaning": {outcome: stuck, before: good, after: lost, watched: quiet, interrupted: true,
			code: exit.Lost, says: "a loss is proven"},
		"lost, then stopped": {outcome: stopped, before: good, after: lost, watched: quiet, interrupted: true,
			code: exit.Lost, says: "7 of 100 probes lost\n"},
		"stopped": {outcome: stopped, before: good, after: good, watched: quiet, interrupted: true,
			code: exit.Interrupted, says: "everything that was installed is removed"},
		"stuck cleaning": {outcome: stuck, before: good, after: good, watched: quiet, interrupted: true,
			code: exit.NeedsPerson, says: "a webhook"},
		"gave up": {outcome: engine.Outcome{End: engine.EndRolledBack, Cause: "x"}, before: good,
			after: engine.Verdict{Reason: "?"}, code: exit.Unproven, says: "is removed: x"},
	} {
		var out bytes.Buffer
		p := planOf(kind.Guard{LossyBefore: test.lossy})
		p.Change.MaxLost = test.maxLost
		err := verdict(&app.App{Streams: app.Streams{Out: &out}}, p, test.outcome, test.interrupted,
			journalOf(t, test.before, test.after, test.ran, test.watched))
		if code := exit.Code(&out, err); code != test.code || !strings.Contains(out.String(), test.says) {
			t.Errorf("%s: exit %d, want %d with %q:\n%s", name, code, test.code, test.says, out.String())
		}
	}
	for name, test := range map[string]struct {
		outcome engine.Outcome
		after   engine.Verdict
		code    int
		says    string
	}{
		"others, good": {done, good, exit.Done, "good: nothing was lost: 100 probes"},
		"others, lost": {done, lost, exit.Lost, "a loss is proven: 7 of 100 probes lost\n"},
		"others, a hole": {done, engine.Verdict{Reason: "a prober restarted"}, exit.Unproven,
			"not proven: a prober restarted"},
		"others, rolled back": {stopped, engine.Verdict{}, exit.Stopped,
			"ended without a verdict; everything that was installed is removed"},
	} {
		records := journalOf(t, good, test.after, result.Ran{}, quiet)
		if records[2].Step = guardplan.StepChange; test.outcome.End == engine.EndStopped {
			records = records[:2]
		}
		var out bytes.Buffer
		err := verdict(&app.App{Streams: app.Streams{Out: &out}}, planOf(kind.Guard{Others: true}),
			test.outcome, false, records)
		if code := exit.Code(&out, err); code != test.code || !strings.Contains(out.String(), test.says) {
			t.Errorf("%s: exit %d, want %d with %q:\n%s", name, code, test.code, test.says, out.String())
		}
	}
	var out bytes.Buffer
	before := lost
	err := verdict(&app.App{}, planOf(kind.Guard{}),
		engine.Outcome{End: engine.EndRolledBack, Cause: "the gate failed"}, false,
		[]engine.Record{{Event: engine.GateAnswer, Step: guardplan.StepProbes, Verdict: &before}})
	if code := exit.Code(&out, err); code != exit.Unproven || !strings.Contains(out.String(), "--baseline-loss-ok") {
		t.Errorf("a baseline that loses: exit %d: %s", code, out.String())
	}
	out.Reset()
	err = verdict(&app.App{}, planOf(kind.Guard{}),
		engine.Outcome{End: engine.EndRolledBack, Cause: "the gate failed"}, false,
		[]engine.Record{{Event: engine.GateAnswer, Step: guardplan.StepProbes, Verdict: &broken}})
	if code := exit.Code(&out, err); code != exit.Unproven ||
		!strings.Contains(out.String(), "change the comparison of --slo") {
		t.Errorf("a baseline with a signal that fails: exit %d: %s", code, out.String())
	}
}

// TestUnknown: a run whose result cannot be read proves nothing, and keeps its own exit code if it did not end.
func TestUnknown(t *testing.T) {
	for end, want := range map[engine.End]int{engine.EndDone: exit.Unproven, engine.EndRolledBack: exit.Unproven,
		engine.EndNeedsPerson: exit.NeedsPerson,
		engine.EndInterrupted: exit.Interrupted} {
		var out bytes.Buffer
		if code := exit.Code(&out, unknown(engine.Outcome{End: end, Hint: "h"}, errors.New("refused"))); code != want ||
			!strings.Contains(out.String(), "cannot be read: refused\nhint: ") {
			t.Errorf("%s: exit %d, want %d: %s", end, code, want, out.String())
		}
	}
}

// TestStands: an interrupted guard of changes by others is left as it is from the baseline on, until there is a
// verdict; a guard of a command never.
func TestStands(t *testing.T) {
	baseline := []engine.StepState{{ID: guardplan.StepProbes, Done: true}}
	watching := append(baseline, engine.StepState{ID: guardplan.StepWatch})
	for name, test := range map[string]struct {
		others bool
		state  engine.State
		want   bool
	}{
		"no baseline yet": {true, engine.State{Steps: []engine.StepState{{ID: guardplan.StepProbes}}}, false},
		"measures":        {true, engine.State{Steps: baseline}, true},
		"watches":         {true, engine.State{Steps: watching}, true},
		"has a verdict": {true, engine.State{Steps: append(baseline,
			engine.StepState{ID: guardplan.StepWatch, Verdict: &engine.Verdict{}})}, false},
		"is being removed": {true, engine.State{Steps: baseline, Undoing: true}, false},
		"a command":        {false, engine.State{Steps: watching}, false},
	} {
		if got := stands(planOf(kind.Guard{Others: test.others}), test.state); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// safe is a buffer for several goroutines.
type safe struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (s *safe) Write(data []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.Write(data)
}

func (s *safe) String() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.String()
}

// TestGuardingInterrupted: a signal while the gate of the result measures is taken, and does not stop the run; one
// before the watching begins stops it.
func TestGuardingInterrupted(t *testing.T) {
	for name, test := range map[string]struct {
		past    []engine.Record
		stopped bool
	}{
		"before the watching": {[]engine.Record{{Event: engine.StepBegan, Step: guardplan.StepChange}}, true},
		"the gate measures": {[]engine.Record{{Event: engine.StepBegan, Step: guardplan.StepWatch},
			{Event: engine.Acted, Step: guardplan.StepWatch},
			{Event: engine.GateAsked, Step: guardplan.StepWatch}}, false},
	} {
		out := &safe{}
		a := &app.App{Streams: app.Streams{Out: out, Err: out}, Signals: &interrupt.Signals{Err: out}}
		p := planOf(kind.Guard{Others: true})
		r := New(a, nil, mirror.Access{}, p, false)
		stopped := guarding(a, r, view.New(a, p))
		r.View.Past(test.past)
		ctx, release := a.Signals.Catch(t.Context())
		_, done := r.Stoppable(run.NewFlight(p))
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); (!strings.Contains(out.String(), "interrupted") ||
			stopped() != test.stopped) && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if done(); stopped() != test.stopped || ctx.Err() != nil {
			t.Errorf("%s: stopped %v: %s", name, stopped(), out.String())
		}
		release()
	}
}

// TestMeasures: a guard that was started says how it goes on, and what the flag --baseline-loss-ok does not detect.
func TestMeasures(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		var out bytes.Buffer
		p := planOf(kind.Guard{Others: true, LossyBefore: lossy})
		p.Name, p.Hash = "g", "h"
		if err := measures(&app.App{Streams: app.Streams{Out: &out}}, p); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); !strings.Contains(text, "  theseus guard stop --guard g --expect h\n") ||
			strings.Contains(text, "does not detect a short rise of losses") != lossy {
			t.Errorf("lossy %t: %s", lossy, text)
		}
	}
}
