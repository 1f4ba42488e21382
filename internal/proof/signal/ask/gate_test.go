package ask

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// quick is a clock whose sleeps are over at once.
type quick struct{ now time.Time }

func (q *quick) Now() time.Time { return q.now }
func (q *quick) Sleep(ctx context.Context, d time.Duration) error {
	q.now = q.now.Add(d)
	return ctx.Err()
}

// bakes is a gate that measures for its bake, and then passes, or does not.
type bakes struct {
	clock *quick
	pass  bool
	polls int
}

func (b *bakes) Ask(ctx context.Context, gate step.Gate, heed func(context.Context) error) (engine.Verdict, error) {
	for end := b.clock.now.Add(time.Duration(gate.Bake)); b.clock.now.Before(end); {
		b.polls++
		if err := heed(ctx); err != nil {
			return engine.Verdict{}, err
		}
		if err := b.clock.Sleep(ctx, time.Second); err != nil {
			return engine.Verdict{}, err
		}
	}
	return engine.Verdict{Pass: b.pass, Reason: "0 of 10 probes lost", Sent: 10}, nil
}

const (
	holds, fails, silent = 'h', 'f', '-'
)

// says answers the rounds of one signal: a letter for each, and the last one again and again.
func says(rounds string) func(context.Context, []signal.Signal) []signal.Answer {
	return func(_ context.Context, all []signal.Signal) []signal.Answer {
		letter := rounds[0]
		if len(rounds) > 1 {
			rounds = rounds[1:]
		}
		answers := make([]signal.Answer, len(all))
		for i, one := range all {
			switch letter {
			case holds:
				answers[i] = one.Measured([]float64{0})
			case fails:
				answers[i] = one.Measured([]float64{9})
			default:
				answers[i] = one.Silent(errors.New("it hangs"))
			}
		}
		return answers
	}
}

func TestGate(t *testing.T) {
	bake := func(d time.Duration) step.Gate { return step.Gate{Bake: step.Duration(d)} }
	for name, test := range map[string]struct {
		gate    step.Gate
		rounds  string // of answers, one each 5 s
		lost    bool   // the paths lose probes
		failing bool   // failures before are accepted
		pass    bool
		polls   int
		reason  string
	}{
		"holds":                      {gate: bake(20 * time.Second), rounds: "h", pass: true, polls: 20, reason: "0 of 10 probes lost; a is 0"},
		"no bake":                    {gate: bake(0), rounds: "h", pass: true, reason: "a is 0"},
		"fails at once":              {gate: bake(time.Hour), rounds: "f", polls: 1, reason: "a is 9, and must be < 1; the paths were not watched to the end"},
		"fails in the middle":        {gate: bake(time.Hour), rounds: "hhhfh", polls: 16, reason: "a is 9, and must be < 1"},
		"fails at the end":           {gate: bake(4 * time.Second), rounds: "hf", polls: 4, reason: "a is 9, and must be < 1; apart from that 0 of 10 probes lost"},
		"silent for a while":         {gate: bake(20 * time.Second), rounds: "--h", pass: true, polls: 20, reason: "a is 0"},
		"silent for too long":        {gate: bake(time.Hour), rounds: "-", polls: 36, reason: "no answer to a: it hangs, for 35s"},
		"silent at the end":          {gate: bake(4 * time.Second), rounds: "h-----h", pass: true, polls: 4, reason: "a is 0"},
		"silent to the end":          {gate: bake(4 * time.Second), rounds: "h-", polls: 4, reason: "no answer to a: it hangs, for 31s; apart from that 0 of 10"},
		"probes lost":                {gate: bake(20 * time.Second), rounds: "h", lost: true, polls: 20, reason: "0 of 10 probes lost; a is 0"},
		"probes lost, and silent":    {gate: bake(4 * time.Second), rounds: "-", lost: true, polls: 4, reason: "no answer to a: it hangs; 0 of 10 probes lost"},
		"baseline":                   {gate: step.Gate{Baseline: true}, rounds: "f", reason: "already before the change: a is 9"},
		"baseline that is accepted":  {gate: step.Gate{Baseline: true}, rounds: "f", failing: true, pass: true, reason: "already before the change: a is 9"},
		"accepted, but silent":       {gate: step.Gate{Baseline: true}, rounds: "-", failing: true, reason: "no answer to a"},
		"accepted, but not baseline": {gate: bake(0), rounds: "f", failing: true, reason: "a is 9"},
		"result":                     {gate: step.Gate{Bake: step.Duration(20 * time.Second), Result: true}, rounds: "hfh", polls: 20, reason: "a is 9"},
		"result of lost probes":      {gate: step.Gate{Result: true}, rounds: "h", lost: true, reason: "0 of 10 probes lost; a is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &quick{time.Unix(1000, 0)}
			inner := &bakes{clock: clock, pass: !test.lost}
			gate := &Gate{Gate: inner, Signals: signals(t, "http://p a < 1"), Clock: clock, Questions: says(test.rounds), FailingBefore: test.failing}
			got, err := gate.Ask(t.Context(), test.gate, func(context.Context) error { return nil })
			if err != nil || got.Pass != test.pass || inner.polls != test.polls || !strings.Contains(got.Reason, test.reason) || len(got.Signals) != 1 {
				t.Errorf("after %d polls: %+v, %v", inner.polls, got, err)
			}
			if got.Pass && !test.failing && signal.Worst(got.Signals) != signal.Holds {
				t.Errorf("passed with %+v", got.Signals)
			}
		})
	}
}

// TestGateLeft: a pause, a rollback or an end of the context is passed on, and is no verdict of the signals.
func TestGateLeft(t *testing.T) {
	left := errors.New("paused")
	clock := &quick{time.Unix(1000, 0)}
	gate := &Gate{Gate: &bakes{clock: clock, pass: true}, Signals: signals(t, "http://p a < 1"), Clock: clock, Questions: says("-")}
	heard := 0
	for _, bake := range []time.Duration{time.Hour, 0} { // while it measures, and at the end
		if _, err := gate.Ask(t.Context(), step.Gate{Bake: step.Duration(bake)}, func(context.Context) error { heard++; return left }); !errors.Is(err, left) || heard == 0 {
			t.Errorf("%v, heard %d times", err, heard)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ask := says("-")
	gate.Questions = func(ctx context.Context, all []signal.Signal) []signal.Answer {
		cancel()
		return ask(ctx, all)
	}
	for _, bake := range []time.Duration{time.Hour, 0} {
		if _, err := gate.Ask(ctx, step.Gate{Bake: step.Duration(bake)}, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}
