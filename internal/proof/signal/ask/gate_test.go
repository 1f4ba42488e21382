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

func (b *bakes) Ask(ctx context.Context, gate step.Gate, follow func(context.Context) error) (engine.Verdict, error) {
	for end := b.clock.now.Add(time.Duration(gate.Bake)); b.clock.now.Before(end); {
		b.polls++
		if err := follow(ctx); err != nil {
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

// says answers the rounds of one signal at once: a letter for each, and the last one again and again.
func says(rounds string) Begin {
	return func(_ context.Context, all []signal.Signal) <-chan []signal.Answer {
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
		round := make(chan []signal.Answer, 1)
		round <- answers
		return round
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
		"holds": {gate: bake(20 * time.Second), rounds: "h", pass: true, polls: 20,
			reason: "0 of 10 probes lost; a is 0"},
		"no bake": {gate: bake(0), rounds: "h", pass: true, reason: "a is 0"},
		"fails at once": {gate: bake(time.Hour), rounds: "f", polls: 1,
			reason: "a is 9, and must be < 1; the paths were not watched to the end"},
		"fails in the middle": {gate: bake(time.Hour), rounds: "hhhfh", polls: 16, reason: "a is 9, and must be < 1"},
		"fails at the end": {gate: bake(4 * time.Second), rounds: "hf", polls: 4,
			reason: "a is 9, and must be < 1; apart from that 0 of 10 probes lost"},
		"silent for a while": {gate: bake(20 * time.Second), rounds: "--h", pass: true, polls: 20, reason: "a is 0"},
		"silent for too long": {gate: bake(time.Hour), rounds: "-", polls: 36,
			reason: "no answer to a: it hangs, for 35s"},
		"silent at the end": {gate: bake(4 * time.Second), rounds: "h-----h", pass: true, polls: 4, reason: "a is 0"},
		"silent to the end": {gate: bake(4 * time.Second), rounds: "h-", polls: 4,
			reason: "no answer to a: it hangs, for 31s; apart from that 0 of 10"},
		"probes lost": {gate: bake(20 * time.Second), rounds: "h", lost: true, polls: 20,
			reason: "0 of 10 probes lost; a is 0"},
		"probes lost, and silent": {gate: bake(4 * time.Second), rounds: "-", lost: true, polls: 4,
			reason: "no answer to a: it hangs; 0 of 10 probes lost"},
		"baseline": {gate: step.Gate{Baseline: true}, rounds: "f", reason: "already before the change: a is 9"},
		"baseline that is accepted": {gate: step.Gate{Baseline: true}, rounds: "f", failing: true, pass: true,
			reason: "already before the change: a is 9"},
		"accepted, but silent": {gate: step.Gate{Baseline: true}, rounds: "-",
			failing: true, reason: "no answer to a"},
		"accepted, but not baseline": {gate: bake(0), rounds: "f", failing: true, reason: "a is 9"},
		"result": {gate: step.Gate{Bake: step.Duration(20 * time.Second), Result: true},
			rounds: "hfh", polls: 20, reason: "a is 9"},
		"silent during a hold": {gate: step.Gate{Title: "hold", Bake: step.Duration(5 * time.Minute)},
			rounds: "h" + strings.Repeat("-", 50) + "h", pass: true, polls: 300, reason: "a is 0"},
		"silent after a hold": {gate: step.Gate{Title: "hold", Bake: step.Duration(5 * time.Minute)},
			rounds: "h-", polls: 300, reason: "no answer to a: it hangs, for 31s"},
		"fails during a hold": {gate: step.Gate{Title: "hold", Bake: step.Duration(time.Hour)}, rounds: "h---f",
			polls: 21, reason: "a is 9"},
		"the way home": {gate: step.Gate{Title: "home", Bake: step.Duration(time.Minute)}, rounds: "f",
			pass: true, polls: 60, reason: "0 of 10 probes lost"},
		"result of lost probes": {gate: step.Gate{Result: true}, rounds: "h", lost: true,
			reason: "0 of 10 probes lost; a is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &quick{time.Unix(1000, 0)}
			inner := &bakes{clock: clock, pass: !test.lost}
			gate := &Gate{Gate: inner, Watch: watching(t, says(test.rounds)), Clock: clock, FailingBefore: test.failing,
				Waits: func(gate step.Gate) bool { return gate.Title == "hold" }, Exempt: func(gate step.Gate) bool {
					return gate.Title == "home"
				}}
			got, err := gate.Ask(t.Context(), test.gate, func(context.Context) error { return nil })
			if err != nil || got.Pass != test.pass || inner.polls != test.polls ||
				!strings.Contains(got.Reason, test.reason) || len(got.Signals) != 1 && test.gate.Title != "home" {
				t.Errorf("after %d polls: %+v, %v", inner.polls, got, err)
			}
			if got.Pass && !test.failing && test.gate.Title != "home" && signal.Worst(got.Signals) != signal.Holds {
				t.Errorf("passed with %+v", got.Signals)
			}
		})
	}
}

// TestGateLeft: a pause, a rollback or an end of the context is passed on, and is no verdict of the signals.
func TestGateLeft(t *testing.T) {
	left := errors.New("paused")
	clock := &quick{time.Unix(1000, 0)}
	gate := &Gate{Gate: &bakes{clock: clock, pass: true}, Watch: watching(t, says("-")), Clock: clock}
	heard := 0
	for _, bake := range []time.Duration{time.Hour, 0} { // while it measures, and at the end
		if _, err := gate.Ask(t.Context(), step.Gate{Bake: step.Duration(bake)},
			func(context.Context) error { heard++; return left }); !errors.Is(err, left) || heard == 0 {
			t.Errorf("%v, heard %d times", err, heard)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ask := says("-")
	gate.Watch = watching(t, func(ctx context.Context, all []signal.Signal) <-chan []signal.Answer {
		cancel()
		return ask(ctx, all)
	})
	for _, bake := range []time.Duration{time.Hour, 0} {
		if _, err := gate.Ask(ctx, step.Gate{Bake: step.Duration(bake)},
			func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}

func watching(t *testing.T, begin Begin) *Watch {
	t.Helper()
	return NewWatch(t.Context(), signals(t, "http://p a < 1"), begin)
}

// flaky is a gate whose first question ends with an error, as when the API server is away.
type flaky struct {
	bakes
	err error
}

func (f *flaky) Ask(ctx context.Context, gate step.Gate, follow func(context.Context) error) (engine.Verdict, error) {
	verdict, err := f.bakes.Ask(ctx, gate, follow)
	if err == nil {
		f.err, err = nil, f.err
	}
	return verdict, err
}

// TestGateRetried: what a signal said before a question failed is not forgotten when it is asked again; the next gate
// starts again.
func TestGateRetried(t *testing.T) {
	away := errors.New("the API server is away")
	clock := &quick{time.Unix(1000, 0)}
	gate := &Gate{Gate: &flaky{bakes{clock: clock, pass: true}, away}, Watch: watching(t, says("hfh")), Clock: clock}
	follow := func(context.Context) error { return nil }
	result := step.Gate{Result: true, Bake: step.Duration(20 * time.Second)}
	if _, err := gate.Ask(t.Context(), result, follow); !errors.Is(err, away) {
		t.Fatal(err)
	}
	if got, err := gate.Ask(t.Context(), result, follow); err != nil || got.Pass ||
		!strings.Contains(got.Reason, "a is 9") {
		t.Errorf("the failure before is forgotten: %+v, %v", got, err)
	}
	if got, err := gate.Ask(t.Context(), result, follow); err != nil || !got.Pass {
		t.Errorf("the next gate: %+v, %v", got, err)
	}
}

// TestGateThroughout: where signals are watched from the baseline to the result, a failure between two gates fails the
// result, and silence goes on from one to the other; what failed before the change is forgotten with the baseline.
func TestGateThroughout(t *testing.T) {
	follow := func(context.Context) error { return nil }
	for rounds, want := range map[string]string{"hhfh": "a is 9", "ffhh": "",
		"hh---------h": "it hangs, for 35s", "hhh": ""} {
		clock := &quick{time.Unix(1000, 0)}
		watch := watching(t, says(rounds))
		gate := &Gate{Gate: &bakes{clock: clock, pass: true}, Watch: watch, Clock: clock,
			Throughout: true, FailingBefore: true}
		if got, err := gate.Ask(t.Context(), step.Gate{Baseline: true, Bake: step.Duration(time.Second)},
			follow); err != nil || !got.Pass {
			t.Fatalf("%s: %+v, %v", rounds, got, err)
		}
		for range 25 { // the change
			clock.now = clock.now.Add(time.Second)
			watch.Look(clock.now)
		}
		got, err := gate.Ask(t.Context(), step.Gate{Result: true, Bake: step.Duration(30 * time.Second)}, follow)
		if err != nil || got.Pass != (want == "") || !strings.Contains(got.Reason, want) {
			t.Errorf("%s: %+v, %v", rounds, got, err)
		}
	}
}

// TestWatch: no caller waits for an answer, an answer that comes later counts, and time without questions is no
// silence.
func TestWatch(t *testing.T) {
	round := make(chan []signal.Answer, 1)
	watch := watching(t, func(context.Context, []signal.Signal) <-chan []signal.Answer { return round })
	one, now := signals(t, "http://p a < 1")[0], time.Unix(1000, 0)
	for range 3 {
		if now = now.Add(4 * time.Second); watch.Look(now) || len(watch.Last()) > 0 || len(watch.Broken()) > 0 {
			t.Fatal("there are answers before any came")
		}
	}
	round <- []signal.Answer{one.Measured([]float64{9})}
	if !watch.Look(now) || len(watch.Broken()) != 1 {
		t.Errorf("an answer that came late is lost: %+v", watch.Answers())
	}
	watch.Restart()
	for _, after := range []time.Duration{0, 5 * time.Second, time.Hour, 5 * time.Second, 15 * time.Second} {
		now = now.Add(after)
		round <- []signal.Answer{one.Silent(errors.New("it hangs"))}
		if watch.Look(now); len(watch.Broken()) > 0 {
			t.Fatalf("broken after %s: %+v", after, watch.Broken())
		}
	}
	round <- []signal.Answer{one.Silent(errors.New("it hangs"))}
	if watch.Look(now.Add(10 * time.Second)); len(watch.Broken()) != 1 {
		t.Error("35 s of silence break nothing")
	}
	watch.Restart()
	watch.Interrupted()
	if got := watch.Broken(); len(got) != 1 || got[0].State != signal.Unknown ||
		!strings.Contains(got[0].Says, "an earlier process asked it") {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	watch = NewWatch(ctx, []signal.Signal{one}, says("-"))
	cancel()
	if watch.Look(now); len(watch.Last()) > 0 {
		t.Errorf("a question that was cut off has an answer: %+v", watch.Last())
	}
	var none *Watch
	if none.Look(now) || none.Broken() != nil || none.Last() != nil {
		t.Error("no signals say something")
	}
}

// TestWatchConfirms: a URL or a command that fails once is asked again after a second, in a gate and at its end. It is
// broken only if it fails again; and a silence in between is no success.
func TestWatchConfirms(t *testing.T) {
	for rounds, broken := range map[string]bool{"fh": false, "hfhfh": false, "ff": true, "hff": true, "f-f": true,
		"f-h": false} {
		for _, text := range []string{"https://shop.example.org/healthz", "command: check"} {
			clock, asked := &quick{time.Unix(1000, 0)}, []time.Time{}
			one, left := signals(t, text)[0], rounds
			begin := func(context.Context, []signal.Signal) <-chan []signal.Answer {
				asked = append(asked, clock.now)
				answer := map[byte]signal.Answer{holds: one.Checked(true, "200"), fails: one.Checked(false, "503"),
					silent: one.Silent(errors.New("it hangs"))}[left[0]]
				left = left[min(1, len(left)-1):]
				round := make(chan []signal.Answer, 1)
				round <- []signal.Answer{answer}
				return round
			}
			for _, bake := range []time.Duration{0, time.Minute} {
				left, asked = rounds, nil
				gate := &Gate{Gate: &bakes{clock: clock, pass: true}, Clock: clock,
					Watch: NewWatch(t.Context(), []signal.Signal{one}, begin)}
				// a gate without a bake asks at its end alone, until the rounds are over
				got, err := gate.Ask(t.Context(), step.Gate{Bake: step.Duration(bake)},
					func(context.Context) error { return nil })
				if want := bake == 0 && rounds[0] == holds || !broken; err != nil || got.Pass != want {
					t.Errorf("%s, %q, %s: %+v, %v", text, rounds, bake, got, err)
				}
				if !got.Pass && !strings.Contains(got.Reason, "503, twice in a row") {
					t.Errorf("%s, %q: %s", text, rounds, got.Reason)
				}
				if bake > 0 && rounds == "ff" && (len(asked) != 2 || asked[1].Sub(asked[0]) != again) {
					t.Errorf("asked at %v", asked)
				}
			}
		}
	}
}

// TestGateNotHeldUp: while questions are on the way, a gate hears a pause, and the loss of probes ends it.
func TestGateNotHeldUp(t *testing.T) {
	never := func(context.Context, []signal.Signal) <-chan []signal.Answer { return make(chan []signal.Answer) }
	clock := &quick{time.Unix(1000, 0)}
	gate := &Gate{Gate: &bakes{clock: clock}, Watch: watching(t, never), Clock: clock}
	if got, err := gate.Ask(t.Context(), step.Gate{Bake: step.Duration(time.Second)},
		func(context.Context) error { return nil }); err != nil || got.Pass {
		t.Errorf("lost probes: %+v, %v", got, err)
	}
	left := errors.New("paused")
	gate = &Gate{Gate: &bakes{clock: clock, pass: true}, Watch: watching(t, never), Clock: clock}
	// while it waits at its end
	if _, err := gate.Ask(t.Context(), step.Gate{},
		func(context.Context) error { return left }); !errors.Is(err, left) {
		t.Error(err)
	}
}
