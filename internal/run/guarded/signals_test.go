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

// answers gives an actor one signal, whose answers are values one after another, and the last one again and again. No value is no answer.
func answers(t *testing.T, a *Actor, values ...*float64) (rounds *atomic.Int64) {
	t.Helper()
	var err error
	if a.Signals, err = signal.ParseAll([]string{"http://p errors < 1"}); err != nil {
		t.Fatal(err)
	}
	rounds = &atomic.Int64{}
	a.Questions = func(_ context.Context, all []signal.Signal) []signal.Answer {
		i := min(int(rounds.Add(1)), len(values)) - 1
		if values[i] == nil {
			return []signal.Answer{all[0].Silent(errors.New("it hangs"))}
		}
		return []signal.Answer{all[0].Measured([]float64{*values[i]})}
	}
	return rounds
}

func at(value float64) *float64 { return &value }

// TestSignalOnLoss: a signal that fails while the command runs is handled as a loss is, and is in the journal.
func TestSignalOnLoss(t *testing.T) {
	hangs := []string{"sh", "-c", "trap 'exit 9' TERM; sleep 60 & wait"}
	a, out, _ := bench(kind.Guard{Command: hangs, Kill: true})
	answers(t, a, at(7))
	got := do[result.Ran](t, a, step.Command)
	if !got.Killed || got.Code != 9 || len(got.Signals) != 1 || got.Signals[0].State != signal.Fails || !out.has("SIGNAL FAILED: errors is 7, and must be < 1") {
		t.Errorf("%+v, said %q", got, out.lines)
	}
	a, out, _ = bench(kind.Guard{Command: []string{"sleep", "1.5"}, Kill: true})
	if rounds := answers(t, a, nil); true {
		got := do[result.Ran](t, a, step.Command)
		if got.Killed || got.Code != 0 || len(got.Signals) != 0 || len(out.lines) > 0 || rounds.Load() != 1 {
			t.Errorf("no answer: %+v, said %q, in %d rounds", got, out.lines, rounds.Load())
		}
	}
	a, _, _ = bench(kind.Guard{Command: []string{"sleep", "1.5"}})
	answers(t, a, at(0))
	a.Questions = func(ctx context.Context, _ []signal.Signal) []signal.Answer {
		<-ctx.Done() // a server that hangs holds no command up
		return []signal.Answer{a.Signals[0].Silent(ctx.Err())}
	}
	begun := time.Now()
	if got := do[result.Ran](t, a, step.Command); got.Code != 0 || len(got.Signals) != 0 || time.Since(begun) > 30*time.Second {
		t.Errorf("a hanging server: %+v", got)
	}
}

// TestSignalWatch: the network is quiet only while the signals hold.
func TestSignalWatch(t *testing.T) {
	guard := kind.Guard{Quiet: step.Duration(12 * time.Second), AtMost: step.Duration(2 * time.Minute)}
	a, _, clock := bench(guard)
	answers(t, a, at(0))
	begun := clock.now
	if got := do[result.Watched](t, a, step.Watch); !got.Quiet || len(got.Signals) != 0 || clock.now.Sub(begun) != 12*time.Second {
		t.Errorf("holds: after %s: %+v", clock.now.Sub(begun), got)
	}
	a, out, clock := bench(guard)
	answers(t, a, at(0), at(5), at(0))
	begun = clock.now
	got := do[result.Watched](t, a, step.Watch)
	if !got.Quiet || len(got.Signals) != 1 || !strings.Contains(got.Why, "errors is 5") || clock.now.Sub(begun) != 17*time.Second || !out.has("SIGNAL FAILED") {
		t.Errorf("failed once: after %s: %+v, said %q", clock.now.Sub(begun), got, out.lines)
	}
	a, _, _ = bench(guard)
	answers(t, a, nil)
	if got := do[result.Watched](t, a, step.Watch); got.Quiet || len(got.Signals) != 1 || got.Signals[0].State != signal.Unknown {
		t.Errorf("silent: %+v", got)
	}
	a, out, _ = bench(kind.Guard{Quiet: guard.Quiet, AtMost: guard.AtMost, LossyBefore: true})
	answers(t, a, at(5))
	if got := do[result.Watched](t, a, step.Watch); !got.Quiet || len(got.Signals) != 1 || out.has("SIGNAL FAILED") {
		t.Errorf("accepted: %+v, said %q", got, out.lines)
	}
}

// TestRunSignals: a guard whose signal leaves its bounds while the command runs, is silent at the end, or fails before. The signal is
// what a real server answers, which the command itself changes.
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
		"before": {"503", "503", 0, engine.EndRolledBack, result.Unproven, "the journal does not have the result"},
	} {
		t.Run(name, func(t *testing.T) {
			p, times := guardOf(t, kind.Guard{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				now := test.before
				if times() > 0 {
					now = test.after
				}
				status, _ := strconv.Atoi(now)
				w.WriteHeader(status)
			}))
			defer server.Close()
			a, _, clock := bench(*p.Guarded)
			a.Actor, a.Questions = done{}, ask.Asker{}.All
			var err error
			if a.Signals, err = signal.ParseAll([]string{server.URL}); err != nil {
				t.Fatal(err)
			}
			records := &journal.Memory{}
			gate := &ask.Gate{Gate: asks{good, good}, Signals: a.Signals, Clock: clock, Questions: a.Questions}
			outcome, err := engine.Run(t.Context(), p, engine.Deps{Actor: a, Gate: gate, Journal: records, Control: runs{}, Clock: clock})
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
			if test.end == engine.EndRolledBack && !strings.Contains(outcome.Cause, "already before the change: "+server.URL+": HTTP status 503") {
				t.Error(outcome.Cause)
			}
		})
	}
}
