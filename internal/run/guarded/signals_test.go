package guarded

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/proof/signal/ask"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// answers gives an actor one signal, whose answers are values one after another, and the last one again and again. No
// value is no answer.
func answers(t *testing.T, a *Actor, values ...*float64) (rounds *atomic.Int64) {
	t.Helper()
	rounds = &atomic.Int64{}
	a.Signals = ask.NewWatch(t.Context(), errorsBelow1(t), func(_ context.Context,
		all []signal.Signal) <-chan []signal.Answer {
		i := min(int(rounds.Add(1)), len(values)) - 1
		round := make(chan []signal.Answer, 1)
		if values[i] == nil {
			round <- []signal.Answer{all[0].Silent(errors.New("it hangs"))}
		} else {
			round <- []signal.Answer{all[0].Measured([]float64{*values[i]})}
		}
		return round
	})
	return rounds
}

func errorsBelow1(t *testing.T) []signal.Signal {
	t.Helper()
	all, err := signal.ParseAll([]string{"http://p errors < 1"})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func at(value float64) *float64 { return &value }

// TestSignalOnLoss: a signal that fails while the command runs is handled as a loss is, and is in the journal.
func TestSignalOnLoss(t *testing.T) {
	hangs := []string{"sh", "-c", "trap 'exit 9' TERM; sleep 60 & wait"}
	a, out, _ := bench(kind.Guard{Command: hangs, Kill: true})
	answers(t, a, at(7))
	got := do[result.Ran](t, a, step.Command{})
	if !got.Killed || got.Code != 9 || len(got.Signals) != 1 || got.Signals[0].State != signal.Fails ||
		!out.has("SIGNAL FAILED: errors is 7, and must be < 1") {
		t.Errorf("%+v, said %q", got, out.lines)
	}
	a, out, _ = bench(kind.Guard{Command: []string{"sleep", "1.5"}, Kill: true})
	if rounds := answers(t, a, nil); true {
		got := do[result.Ran](t, a, step.Command{})
		if got.Killed || got.Code != 0 || len(got.Signals) != 0 || len(out.lines) > 0 || rounds.Load() != 1 {
			t.Errorf("no answer: %+v, said %q, in %d rounds", got, out.lines, rounds.Load())
		}
	}
	// A server that hangs holds no command up. What it says when the command has ended is not lost.
	a, _, _ = bench(kind.Guard{Command: []string{"sleep", "1.5"}, Quiet: step.Duration(time.Second),
		AtMost: step.Duration(time.Minute)})
	round := make(chan []signal.Answer, 1)
	a.Signals = ask.NewWatch(t.Context(), errorsBelow1(t),
		func(context.Context, []signal.Signal) <-chan []signal.Answer { return round })
	if got := do[result.Ran](t, a, step.Command{}); got.Code != 0 || len(got.Signals) != 0 {
		t.Errorf("a hanging server: %+v", got)
	}
	round <- []signal.Answer{errorsBelow1(t)[0].Measured([]float64{7})}
	if got := do[result.Watched](t, a, step.Watch{}); len(got.Signals) != 1 || got.Signals[0].State != signal.Fails {
		t.Errorf("an answer after the command is lost: %+v", got)
	}
}

// TestSignalAtEnd: an answer that has come when the command ends counts, whatever is seen first.
func TestSignalAtEnd(t *testing.T) {
	for range 20 {
		a, _, _ := bench(kind.Guard{Command: []string{"true"}})
		round := make(chan []signal.Answer, 1)
		a.Signals = ask.NewWatch(t.Context(), errorsBelow1(t),
			func(context.Context, []signal.Signal) <-chan []signal.Answer { return round })
		a.Signals.Look(a.Clock.Now()) // on the way since the baseline
		round <- []signal.Answer{errorsBelow1(t)[0].Measured([]float64{7})}
		if got := do[result.Ran](t, a, step.Command{}); len(got.Signals) != 1 {
			t.Fatalf("%+v", got)
		}
	}
}

// TestSignalAcceptedBefore: --baseline-loss-ok excepts the signals that failed in the baseline, and no others.
func TestSignalAcceptedBefore(t *testing.T) {
	hangs := []string{"sh", "-c", "trap 'exit 9' TERM; sleep 3 & wait"}
	for name, state := range map[string]signal.State{"errors": signal.Fails, "others": signal.Holds} {
		a, out, _ := bench(kind.Guard{Command: hangs, Kill: true, LossyBefore: true})
		answers(t, a, at(7))
		a.Learn(engine.Record{Event: engine.GateAnswer, Step: "probes", Verdict: &engine.Verdict{Pass: true,
			Signals: []signal.Answer{{Signal: errorsBelow1(t)[0].String(), State: state, Says: "errors is 7"}}}})
		excepted := state == signal.Fails
		got := do[result.Ran](t, a, step.Command{})
		if got.Killed == excepted || out.has("SIGNAL FAILED") == excepted ||
			out.has("note: a signal failed in the baseline, and proves nothing: errors is 7") != excepted {
			t.Errorf("%s: %+v, said %q", name, got, out.lines)
		}
	}
}

// TestSignalWatch: the network is quiet only while the signals hold.
func TestSignalWatch(t *testing.T) {
	guard := kind.Guard{Quiet: step.Duration(12 * time.Second), AtMost: step.Duration(2 * time.Minute)}
	a, _, clock := bench(guard)
	answers(t, a, at(0))
	begun := clock.now
	if got := do[result.Watched](t, a, step.Watch{}); !got.Quiet || len(got.Signals) != 0 ||
		clock.now.Sub(begun) != 12*time.Second {
		t.Errorf("holds: after %s: %+v", clock.now.Sub(begun), got)
	}
	a, out, clock := bench(guard)
	answers(t, a, at(0), at(5), at(0))
	begun = clock.now
	got := do[result.Watched](t, a, step.Watch{})
	if !got.Quiet || len(got.Signals) != 1 || !strings.Contains(got.Why, "errors is 5") ||
		clock.now.Sub(begun) != 17*time.Second || !out.has("SIGNAL FAILED") {
		t.Errorf("failed once: after %s: %+v, said %q", clock.now.Sub(begun), got, out.lines)
	}
	a, _, _ = bench(guard)
	answers(t, a, nil)
	if got := do[result.Watched](t, a, step.Watch{}); got.Quiet || len(got.Signals) != 1 ||
		got.Signals[0].State != signal.Unknown {
		t.Errorf("silent: %+v", got)
	}
	a, out, _ = bench(kind.Guard{Quiet: guard.Quiet, AtMost: guard.AtMost, LossyBefore: true})
	answers(t, a, at(5))
	a.already = []string{"http://p errors < 1"}
	if got := do[result.Watched](t, a, step.Watch{}); !got.Quiet || len(got.Signals) != 1 || out.has("SIGNAL FAILED") {
		t.Errorf("accepted: %+v, said %q", got, out.lines)
	}
}

// TestRunSignals: a guard whose signal leaves its bounds while the command runs, is silent at the end, or fails before.
// The signal is what a real server answers, which the command itself changes.
func TestRunSignals(t *testing.T) {
	good := engine.Verdict{Pass: true, Reason: "none lost"}
	for name, test := range map[string]struct {
		before, after string // what the server answers, until the command has run and from then on
		times         int
		end           engine.End
		proof         result.Proof
		why           string
	}{
		"holds":  {"200", "204", 1, engine.EndDone, result.Good, ""},
		"fails":  {"200", "503", 1, engine.EndDone, result.Broken, "HTTP status 503"},
		"down":   {"200", "none", 1, engine.EndDone, result.Broken, "no answer: "},
		"before": {"503", "503", 0, engine.EndRolledBack, result.Unproven, "the journal does not have the result"},
	} {
		t.Run(name, func(t *testing.T) {
			p, times := guardOf(t, kind.Guard{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				now := test.before
				if times() > 0 {
					now = test.after
				}
				if now == "none" {
					panic(http.ErrAbortHandler) // as a service that is down
				}
				status, _ := strconv.Atoi(now)
				w.WriteHeader(status)
			}))
			defer server.Close()
			a, _, _ := bench(*p.Guarded)
			clock := &ticking{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
			a.Clock, a.Maker, a.Nodes = clock, &maker{}, p.Cluster.Nodes
			signals, err := signal.ParseAll([]string{server.URL})
			if err != nil {
				t.Fatal(err)
			}
			a.Actor, a.Signals = done{}, ask.NewWatch(t.Context(), signals, (&ask.Asker{}).Begin)
			records := &journal.Memory{}
			gate := &ask.Gate{Gate: asks{good, good}, Watch: a.Signals, Clock: clock, Throughout: true}
			outcome, err := engine.Run(t.Context(), p,
				engine.Deps{Actor: a, Gate: gate, Journal: records, Control: runs{}, Clock: clock})
			if err != nil || outcome.End != test.end || times() != test.times {
				t.Fatalf("%+v, %v; the command ran %d times", outcome, err, times())
			}
			all, err := records.Records(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if proof, why := result.Of(p, all).Judge(); proof != test.proof || !strings.Contains(why, test.why) {
				t.Errorf("%s, %q", proof, why)
			}
			if test.end == engine.EndRolledBack &&
				!strings.Contains(outcome.Cause, "already before the change: "+server.URL+": HTTP status 503") {
				t.Error(outcome.Cause)
			}
		})
	}
}
