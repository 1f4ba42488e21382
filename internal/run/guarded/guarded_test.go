package guarded

import (
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// meter is a gate that gives one answer after another, and the last one again and again.
type meter struct {
	lock    sync.Mutex
	answers []kube.Glance
	looks   int64
}

func (m *meter) Look(context.Context, int64) (kube.Glance, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.looks++
	answer := m.answers[0]
	if len(m.answers) > 1 {
		m.answers = m.answers[1:]
	}
	if answer.Reports == nil {
		answer.Reports = map[string]int64{"n": m.looks}
	}
	return answer, nil
}

// quick is a clock whose sleeps are over at once.
type quick struct {
	now   time.Time
	slept func()
}

func (q *quick) Now() time.Time { return q.now }
func (q *quick) Sleep(ctx context.Context, d time.Duration) error {
	q.now = q.now.Add(d)
	if q.slept != nil {
		q.slept()
	}
	return ctx.Err()
}

// said keeps lines.
type said struct {
	lock  sync.Mutex
	lines []string
}

func (s *said) say(line string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.lines = append(s.lines, line)
}

func (s *said) has(text string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.ContainsFunc(s.lines, func(line string) bool { return strings.Contains(line, text) })
}

func bench(guard kind.Guard, answers ...kube.Glance) (*Actor, *said, *quick) {
	out, clock := &said{}, &quick{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if len(answers) == 0 {
		answers = []kube.Glance{{}}
	}
	return &Actor{Guard: guard, Gate: &meter{answers: answers}, Clock: clock, Start: Here(nil, out.say),
		Say: out.say}, out, clock
}

func do[T any](t *testing.T, a *Actor, operation step.Operation) T {
	t.Helper()
	data, err := a.Do(t.Context(), step.Action{Do: operation}, begun)
	if err != nil {
		t.Fatal(err)
	}
	var answer T
	if err := json.Unmarshal(data, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func loses(lost int64) kube.Glance {
	return kube.Glance{Verdict: engine.Verdict{Lost: lost, Reason: "lost"}, Proven: true}
}

// TestCommand: how a command ends is the answer, never an error, and its output comes line by line.
func TestCommand(t *testing.T) {
	for script, want := range map[string]result.Ran{
		"echo one; printf 'two\\rthree'": {},
		"exit 3":                         {Code: 3},
		"kill -TERM $$":                  {Code: -1, Signal: "terminated"},
		"sleep 60 & echo left":           {}, // what it leaves behind keeps its output open
		// The sixth field is the session: its own, which has no terminal.
		`read -r _ _ _ _ _ session _ </proc/$$/stat; [ "$session" = $$ ] || exit 5`: {},
	} {
		a, out, _ := bench(kind.Guard{Command: []string{"sh", "-c", script}})
		if got := do[result.Ran](t, a, step.Command{}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", script, got, want)
		}
		if strings.HasPrefix(script, "echo one") && !slices.Equal(out.lines, []string{"one", "two", "three"}) {
			t.Errorf("said %q", out.lines)
		}
	}
}

// TestCommandOnce: a command that cannot be started is an error; one that was begun by an earlier process is not run
// again.
func TestCommandOnce(t *testing.T) {
	a, _, _ := bench(kind.Guard{Command: []string{"/nonexistent/program"}})
	if _, err := a.Do(t.Context(), step.Action{Do: step.Command{}}, begun); err == nil || engine.HintOf(err) == "" {
		t.Errorf("started: %v", err)
	}
	first, err := a.Observe(t.Context(), step.Action{Do: step.Command{}}, nil)
	if err != nil || first.Done || len(first.Before) == 0 {
		t.Fatalf("at first: %+v, %v", first, err)
	}
	again, err := a.Observe(t.Context(), step.Action{Do: step.Command{}}, first.Before)
	var ran result.Ran
	if err != nil || !again.Done || json.Unmarshal(again.Before, &ran) != nil || !ran.Unknown || ran.Failed() == "" {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// TestOnLoss: a proven loss runs the way back, or ends the command; without either it is said. A loss that may be
// explained is none.
func TestOnLoss(t *testing.T) {
	hangs := []string{"sh", "-c", "trap 'exit 9' TERM; sleep 60 & wait"}
	a, out, _ := bench(kind.Guard{Command: hangs, Kill: true}, loses(2))
	if got := do[result.Ran](t, a, step.Command{}); !reflect.DeepEqual(got, result.Ran{Code: 9, Killed: true}) ||
		!out.has("LOSS: lost") {
		t.Errorf("kill: %+v, said %q", got, out.lines)
	}
	file := filepath.Join(t.TempDir(), "back")
	waits := []string{"sh", "-c", "until [ -e " + file + " ]; do sleep 0.1; done"}
	a, out, _ = bench(kind.Guard{Command: waits, OnLoss: []string{"sh", "-c", "echo back; touch " + file + "; exit 4"}},
		loses(2))
	got := do[result.Ran](t, a, step.Command{})
	if got.OnLoss == nil || got.OnLoss.Code != 4 || got.Code != 0 || !out.has("back") ||
		!out.has("the command of --on-loss failed") {
		t.Errorf("way back: %+v, said %q", got, out.lines)
	}
	short := []string{"sleep", "1.5"}
	a, out, _ = bench(kind.Guard{Command: short, OnLoss: []string{"false"}},
		kube.Glance{Verdict: engine.Verdict{Lost: 1}})
	if got := do[result.Ran](t, a, step.Command{}); got.OnLoss != nil || len(out.lines) > 0 {
		t.Errorf("not proven: %+v, said %q", got, out.lines)
	}
	a, out, _ = bench(kind.Guard{Command: short, LossyBefore: true}, loses(2))
	if do[result.Ran](t, a, step.Command{}); out.has("LOSS") {
		t.Errorf("accepted before: said %q", out.lines)
	}
	more := kube.Glance{Verdict: engine.Verdict{Lost: 20, Against: &loss.Against{Proven: true, Why: "10 % since"}}}
	a, out, _ = bench(kind.Guard{Command: short, LossyBefore: true}, more)
	if do[result.Ran](t, a, step.Command{}); !out.has("LOSS: 10 % since") {
		t.Errorf("more than before: said %q", out.lines)
	}
}

// TestWatchLossy: where losses are compared with those of the baseline, the watching ends when the comparison is
// decided, at the earliest when it is quiet, and at the latest after its bound.
func TestWatchLossy(t *testing.T) {
	guard := kind.Guard{LossyBefore: true, Quiet: step.Duration(10 * time.Second), AtMost: step.Duration(time.Minute)}
	lossy := func(lost int64, against loss.Against) kube.Glance {
		return kube.Glance{Verdict: engine.Verdict{Lost: lost, Against: &against}}
	}
	var open []kube.Glance
	for n := range int64(30) {
		open = append(open, lossy(n, loss.Against{}))
	}
	for name, test := range map[string]struct {
		answers []kube.Glance
		quiet   bool
		took    time.Duration
	}{
		"decided":   {[]kube.Glance{lossy(1, loss.Against{Harmless: true})}, true, 10 * time.Second},
		"more":      {[]kube.Glance{lossy(1, loss.Against{Proven: true})}, true, 10 * time.Second},
		"later":     {append(slices.Clone(open), lossy(31, loss.Against{Harmless: true})), true, 30 * time.Second},
		"undecided": {open, false, time.Minute},
	} {
		a, _, clock := bench(guard, test.answers...)
		began := clock.now
		if got := do[result.Watched](t, a, step.Watch{}); got.Quiet != test.quiet || clock.now.Sub(began) != test.took {
			t.Errorf("%s: %+v after %s", name, got, clock.now.Sub(began))
		}
	}
}

// TestBaselineSaid: a baseline that lost probes and passes says what it lost.
func TestBaselineSaid(t *testing.T) {
	a, out, _ := bench(kind.Guard{LossyBefore: true})
	lost := &loss.Lossy{Parts: []loss.LossyPart{{Clean: 990, Slots: [][2]int64{{10, 1}}}}}
	a.Learn(engine.Record{Event: engine.GateAnswer, Step: "p", Verdict: &engine.Verdict{Pass: true,
		Lossy: &loss.Lossy{Parts: []loss.LossyPart{{Clean: 1000}}}}})
	if len(out.lines) > 0 {
		t.Errorf("said %q", out.lines)
	}
	a.Learn(engine.Record{Event: engine.GateAnswer, Step: "p", Verdict: &engine.Verdict{Pass: true, Lossy: lost}})
	if !out.has("the baseline lost probes") || !out.has("1 of 1,000 probes lost (0.1 %)") {
		t.Errorf("said %q", out.lines)
	}
}

// TestOnLossOnce: a process that continues the run of another one says a loss, and does not run the command of
// --on-loss: it may have run.
func TestOnLossOnce(t *testing.T) {
	guard := kind.Guard{OnLoss: []string{"echo", "back"}, Quiet: step.Duration(time.Second),
		AtMost: step.Duration(time.Minute)}
	a, out, _ := bench(guard, loses(2))
	if got := do[result.Watched](t, a, step.Watch{}); got.OnLoss != nil || out.has("back") ||
		!out.has("LOSS: lost") || !out.has("is not run") {
		t.Errorf("%+v, said %q", got, out.lines)
	}
}

// stubborn is a command that no signal reaches.
type stubborn struct{ Process }

func (stubborn) Interrupt() error { return syscall.EPERM }
func (stubborn) Kill() error      { return syscall.EPERM }

// TestInterrupt: the first interrupt ends the command, the second kills it, unless it comes at once; when nothing runs,
// an interrupt is for the run.
func TestInterrupt(t *testing.T) {
	a, out, clock := bench(
		kind.Guard{Command: []string{"sh", "-c", "trap 'echo heard' INT; echo ready; while :; do sleep 0.1; done"}})
	if a.Interrupt() {
		t.Error("an interrupt was taken before the command")
	}
	until := func(text string) {
		for end := time.Now().Add(10 * time.Second); !out.has(text); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%q was not said: %q", text, out.lines)
				return
			}
		}
	}
	go func() { // ends with the command
		until("ready")
		a.Interrupt()
		until("heard")
		if a.Interrupt(); out.has("killed") {
			t.Error("the same interrupt killed the command")
		}
		clock.now = clock.now.Add(bounce)
		a.Interrupt()
	}()
	if got := do[result.Ran](t, a, step.Command{}); !reflect.DeepEqual(got,
		result.Ran{Code: -1, Signal: "killed", Interrupted: true}) {
		t.Errorf("%+v", got)
	}
	clock.now = clock.now.Add(bounce)
	if a.Interrupt() {
		t.Error("an interrupt was taken after the command")
	}
}

// TestInterruptHelpless: the command, or that of --on-loss, which cannot be ended takes two interrupts, and the third
// is for the run.
func TestInterruptHelpless(t *testing.T) {
	for name, set := range map[string]func(*Actor){
		"command": func(a *Actor) { a.running = &running{Process: stubborn{}} },
		"on-loss": func(a *Actor) { a.running, a.way = &running{}, &running{Process: stubborn{}} },
	} {
		a, out, clock := bench(kind.Guard{})
		set(a)
		var took []bool
		for range 3 {
			took = append(took, a.Interrupt())
			clock.now = clock.now.Add(bounce)
		}
		if !slices.Equal(took, []bool{true, true, false}) || !out.has("could not be sent: operation not permitted") {
			t.Errorf("%s: %v, said %q", name, took, out.lines)
		}
	}
}

// TestInterruptResult: once the watching has begun, an interrupt ends the watching, even before its first look, and
// another one is taken while the gate measures; the next is for the run, as is one when the gate has answered.
func TestInterruptResult(t *testing.T) {
	a, out, clock := bench(kind.Guard{Quiet: step.Duration(time.Hour), AtMost: step.Duration(time.Hour)})
	a.Result = "watch"
	interrupt := func() bool {
		clock.now = clock.now.Add(bounce)
		return a.Interrupt()
	}
	a.Learn(engine.Record{Event: engine.StepBegan, Step: "command"})
	if interrupt() {
		t.Error("an interrupt was taken before the watching")
	}
	a.Learn(engine.Record{Event: engine.StepBegan, Step: "watch"})
	if !interrupt() || !out.has("the watching ends here, and the verdict follows") {
		t.Errorf("said %q", out.lines)
	}
	if got := do[result.Watched](t, a, step.Watch{}); !reflect.DeepEqual(got, result.Watched{Interrupted: true}) {
		t.Errorf("%+v", got)
	}
	a.Learn(engine.Record{Event: engine.Acted, Step: "watch"})
	if !interrupt() || !out.has("interrupt again to end without a verdict") || interrupt() {
		t.Errorf("said %q", out.lines)
	}
	a.pressed = false
	if a.Learn(engine.Record{Event: engine.GateAnswer, Step: "watch", Verdict: &engine.Verdict{}}); interrupt() {
		t.Error("an interrupt was taken after the verdict")
	}
}

// TestWatch: it ends when nothing was lost for a while, at a bound, or by an interrupt; a silent node is not quiet.
func TestWatch(t *testing.T) {
	guard := kind.Guard{Quiet: step.Duration(5 * time.Second), AtMost: step.Duration(time.Minute)}
	a, _, clock := bench(guard, kube.Glance{}, loses(1), loses(1), loses(4))
	begun := clock.now
	if got := do[result.Watched](t, a, step.Watch{}); !got.Quiet || !strings.Contains(got.Why, "3 probes were lost") ||
		clock.now.Sub(begun) != 8*time.Second {
		t.Errorf("after %s: %+v", clock.now.Sub(begun), got)
	}
	a, _, _ = bench(guard, kube.Glance{Reports: map[string]int64{"n": 7}})
	a.Guard.Quiet = step.Duration(20 * time.Second)
	if got := do[result.Watched](t, a, step.Watch{}); got.Quiet ||
		!strings.Contains(got.Why, "n has reported nothing for") {
		t.Errorf("a silent node: %+v", got)
	}
	a, _, clock = bench(guard, kube.Glance{}, loses(1))
	a.here, a.Guard.OnLoss = true, []string{"true"}
	start := a.Start
	a.Start = func(command []string) (Process, error) {
		clock.now = clock.now.Add(time.Hour)
		return start(command)
	}
	begun = clock.now
	if got := do[result.Watched](t, a, step.Watch{}); !got.Quiet || got.OnLoss == nil ||
		clock.now.Sub(begun) != time.Hour+6*time.Second {
		t.Errorf("a long command of --on-loss: after %s: %+v", clock.now.Sub(begun), got)
	}
	a, _, clock = bench(guard)
	clock.slept = func() { a.Interrupt() }
	if got := do[result.Watched](t, a, step.Watch{}); got.Quiet || !got.Interrupted {
		t.Errorf("interrupted: %+v", got)
	}
}
