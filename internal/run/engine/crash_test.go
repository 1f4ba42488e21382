package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// bench is a plan, a world and a journal that outlive the processes which run on them.
type bench struct {
	plan    *plan.Plan
	world   *world
	disk    *disk
	clock   *clock
	options engine.Options
	// together makes the calls of a group; nil makes one after another.
	together func(calls []func())
}

func newBench(p *plan.Plan, w *world) *bench {
	w.clock = newClock()
	return &bench{plan: p, world: w, disk: &disk{}, clock: w.clock}
}

// hook makes every point of the world and of the journal call f.
func (b *bench) hook(f func(point string) error) { b.world.hook, b.disk.hook = f, f }

func (b *bench) run(ctx context.Context) (engine.Outcome, error) {
	return engine.Run(ctx, b.plan, engine.Deps{Actor: b.world, Gate: b.world, Journal: b.disk, Control: b.world,
		Clock: b.clock, Together: b.together, By: "tester@here", Theseus: "v0", Options: b.options})
}

// crash is what a dying process panics with.
type crash struct{}

// survive runs until the engine comes to an end by itself, with the process dying as the hook says.
func (b *bench) survive(ctx context.Context) (outcome engine.Outcome, err error, died bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			died = true
		}
	}()
	outcome, err = b.run(ctx)
	return outcome, err, false
}

// manner is a way to die: kill is called at the chosen point. One that dies twice does so again soon after
// it was resumed, each time at another distance.
type manner struct {
	name  string
	twice bool
	kill  func(cancel context.CancelFunc) error
}

// second are the points of the second death; 0 is none.
func (m manner) second(first int) []int {
	if m.twice {
		return []int{0, 1 + first%17}
	}
	return []int{0}
}

var errBroken = errors.New("broken for good")

func manners() []manner {
	return []manner{
		{"panic", true, func(context.CancelFunc) error { panic(crash{}) }},
		{"interrupt", false, func(cancel context.CancelFunc) error { cancel(); return nil }},
		{"interrupted call", false, func(cancel context.CancelFunc) error { cancel(); return context.Canceled }},
	}
}

// dieAt runs the bench, dies at each of the points in turn (counted again in every run), then runs to the
// end. It returns false when the first point was never reached.
func (b *bench) dieAt(t *testing.T, m manner, points ...int) (engine.Outcome, bool) {
	t.Helper()
	for i, point := range points {
		ctx, cancel := context.WithCancel(t.Context())
		n, hit := 0, ""
		b.hook(func(name string) error {
			n++
			if n == point {
				hit = name
				return m.kill(cancel)
			}
			return nil
		})
		outcome, err, died := b.survive(ctx)
		cancel()
		switch {
		case hit == "" && i == 0:
			return outcome, false
		case hit == "":
			return outcome, true // it was over before the second death
		case err != nil:
			t.Fatalf("%s at point %d (%s): %v", m.name, point, hit, err)
		case !died && outcome.End != engine.EndInterrupted && outcome.State.Phase != engine.PhaseDone &&
			outcome.State.Phase != engine.PhaseRolledBack:
			t.Fatalf("%s at point %d (%s): ended as %s: %s", m.name, point, hit, outcome.End, outcome.Cause)
		}
	}
	b.hook(func(string) error { return nil })
	outcome, err := b.run(t.Context())
	if err != nil {
		t.Fatalf("%s at points %v, resumed: %v", m.name, points, err)
	}
	return outcome, true
}

// scenarios are runs that end in different ways.
func scenarios() []struct {
	name  string
	setUp func(*world)
	end   engine.End
} {
	return []struct {
		name  string
		setUp func(*world)
		end   engine.End
	}{
		{"forward", func(*world) {}, engine.EndDone},
		{"rollback at the last gate", func(w *world) { w.gates["bake"] = false }, engine.EndRolledBack},
		{"rollback when a node of a group fails", func(w *world) { w.broken["join-b"] = true }, engine.EndRolledBack},
		{"rollback in the middle of a wave", func(w *world) { w.gates["switched-b"] = false }, engine.EndRolledBack},
	}
}

// TestCrashAnywhere kills the run at every point at which it touches the world or the journal, in every
// manner, once and twice, and demands the same world as without a crash, with every change made once.
func TestCrashAnywhere(t *testing.T) {
	for _, scenario := range scenarios() {
		calm := newBench(migration(), before())
		scenario.setUp(calm.world)
		outcome, err := calm.run(t.Context())
		if err != nil || outcome.End != scenario.end {
			t.Fatalf("%s: without a crash it ends as %s (%s), error %v", scenario.name, outcome.End, outcome.Cause, err)
		}
		if scenario.end == engine.EndRolledBack {
			if diff := cmp.Diff(before().objects, calm.world.objects); diff != "" {
				t.Fatalf("%s: the rollback leaves (-before +after):\n%s", scenario.name, diff)
			}
		}
		for _, m := range manners() {
			t.Run(scenario.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				points := 0
				for point := 1; ; point++ {
					reached, outcome := false, engine.Outcome{}
					for _, second := range m.second(point) {
						b := newBench(migration(), before())
						scenario.setUp(b.world)
						deaths := []int{point}
						if second > 0 {
							deaths = append(deaths, second)
						}
						outcome, reached = b.dieAt(t, m, deaths...)
						if !reached {
							break
						}
						b.compare(t, fmt.Sprintf("died at points %v", deaths), outcome, scenario.end, calm)
					}
					if !reached {
						break
					}
					points++
				}
				if points < 3*len(calm.disk.lines) {
					t.Errorf("only %d points for %d records: the loop does not reach everything",
						points, len(calm.disk.lines))
				}
				t.Logf("%d points, %d records", points, len(calm.disk.lines))
			})
		}
	}
}

// compare demands the end, the world and the changes of a calm run.
func (b *bench) compare(t *testing.T, what string, got engine.Outcome, want engine.End, calm *bench) {
	t.Helper()
	if got.End != want {
		t.Fatalf("%s: ended as %s (%s), not %s", what, got.End, got.Cause, want)
	}
	if !reflect.DeepEqual(calm.world.objects, b.world.objects) { // cmp is slow, and this is called often
		t.Fatalf("%s: the world differs (-calm +crashed):\n%s", what, cmp.Diff(calm.world.objects, b.world.objects))
	}
	if !maps.Equal(calm.world.changes, b.world.changes) {
		t.Fatalf("%s: the changes differ (-calm +crashed):\n%s", what, cmp.Diff(calm.world.changes, b.world.changes))
	}
	records, err := b.disk.Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Replay(records); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestBrokenJournal makes every append fail permanently, before or after it is on the disk: the run stops at
// once, does nothing more, and the next one goes on.
func TestBrokenJournal(t *testing.T) {
	calm := newBench(migration(), before())
	if _, err := calm.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2*len(calm.disk.lines); n++ {
		b := newBench(migration(), before())
		at, broken, after := 0, false, 0
		b.disk.hook = func(string) error {
			if at++; at == n {
				broken = true
				return errBroken
			}
			return nil
		}
		b.world.hook = func(string) error {
			if broken {
				after++
			}
			return nil
		}
		outcome, err := b.run(t.Context())
		if !errors.Is(err, errBroken) || after > 0 {
			t.Fatalf("append %d breaks: error %v, %d calls to the world after it", n, err, after)
		}
		b.hook(func(string) error { return nil })
		if outcome, err = b.run(t.Context()); err != nil {
			t.Fatalf("append %d broke, resumed: %v", n, err)
		}
		b.compare(t, fmt.Sprintf("append %d broke", n), outcome, engine.EndDone, calm)
	}
}

// TestRollbackFromEverywhere asks for a rollback at every point of the run. Before the point of no return
// it ends where it began; after it, the run stops, says so, and goes on when it is asked to.
func TestRollbackFromEverywhere(t *testing.T) {
	initial := before()
	calm := newBench(migration(), before())
	if _, err := calm.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopped, refused := 0, 0
	for point := 1; ; point++ {
		b := newBench(migration(), before())
		n := 0
		b.hook(func(string) error {
			if n++; n == point {
				b.world.desire = v1alpha1.DesireRollback
			}
			return nil
		})
		outcome, err := b.run(t.Context())
		if err != nil {
			t.Fatalf("point %d: %v", point, err)
		}
		if n < point {
			break
		}
		switch outcome.End {
		case engine.EndStopped:
			stopped++
			if diff := cmp.Diff(initial.objects, b.world.objects); diff != "" {
				t.Fatalf("rollback from point %d leaves (-before +after):\n%s", point, diff)
			}
			if outcome.ExitCode() != 5 {
				t.Fatalf("point %d: exit code %d", point, outcome.ExitCode())
			}
		case engine.EndPaused:
			refused++
			if !outcome.PastReturn || outcome.ExitCode() != 6 || outcome.Cause == "" {
				t.Fatalf("point %d: paused before the point of no return, or without a cause: %+v", point, outcome)
			}
			b.world.desire = v1alpha1.DesireRun
			if outcome, err = b.run(t.Context()); err != nil {
				t.Fatalf("point %d, resumed: %v", point, err)
			}
			b.compare(t, fmt.Sprintf("rollback refused at point %d", point), outcome, engine.EndDone, calm)
		case engine.EndDone: // asked for after the last action
		default:
			t.Fatalf("point %d: %s: %s", point, outcome.End, outcome.Cause)
		}
	}
	if stopped < 100 || refused < 30 {
		t.Errorf("%d rollbacks and %d refusals: the loop does not reach everything", stopped, refused)
	}
}

// TestOutages makes every call fail a few times with an error that passes, at every point, before or after
// its effect; nothing of it may show in the end.
func TestOutages(t *testing.T) {
	for _, scenario := range scenarios() {
		calm := newBench(migration(), before())
		scenario.setUp(calm.world)
		if _, err := calm.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for length := range 3 {
			t.Run(fmt.Sprintf("%s/%d", scenario.name, length+1), func(t *testing.T) {
				b := newBench(migration(), before())
				scenario.setUp(b.world)
				calls := map[string]int{}
				b.hook(func(point string) error {
					if calls[point]++; calls[point]%(length+2) != 0 {
						if calls[point]%2 == 0 { // it is there again, and has not read its roles yet
							return engine.Refused(errors.New(point))
						}
						return fmt.Errorf("%s: %w", point, engine.ErrUnavailable)
					}
					return nil
				})
				outcome, err := b.run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(calm.world.broken) > 0 { // more of a group begin if the one that fails meets an outage first
					calm.world.changes = b.world.changes
				}
				b.compare(t, "flaky", outcome, scenario.end, calm)
				if waited := b.clock.now.Sub(newClock().now); waited < time.Minute {
					t.Errorf("only %s were waited: the outages did not happen", waited)
				}
			})
		}
	}
}

// TestLongOutage takes the API server away for 30 s, which is waited out, and for longer than the patience,
// which needs a person and can be resumed.
func TestLongOutage(t *testing.T) {
	calm := newBench(migration(), before())
	if _, err := calm.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, away := range []time.Duration{30 * time.Second, 20 * time.Minute} {
		for point := 1; ; point++ {
			b := newBench(migration(), before())
			n := 0
			var back time.Time
			b.hook(func(string) error {
				if n++; n == point {
					back = b.clock.now.Add(away)
				}
				if b.clock.now.Before(back) {
					return engine.ErrUnavailable
				}
				return nil
			})
			outcome, err := b.run(t.Context())
			if err != nil {
				t.Fatalf("%s from point %d: %v", away, point, err)
			}
			if n < point {
				break
			}
			if away > 5*time.Minute && outcome.End != engine.EndDone { // done: away after the last record only
				if outcome.End != engine.EndNeedsPerson || outcome.Hint == "" || outcome.ExitCode() != 6 {
					t.Fatalf("%s from point %d: %+v", away, point, outcome)
				}
				b.clock.now = b.clock.now.Add(away)
				if outcome, err = b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			b.compare(t, fmt.Sprintf("away for %s from point %d", away, point), outcome, engine.EndDone, calm)
		}
	}
}

// TestRefusedForGood: a call that is refused for longer than an API server needs to read its roles has failed, and the
// step is taken back; during a rollback a person is asked. Both say for how long it was tried.
func TestRefusedForGood(t *testing.T) {
	for _, back := range []bool{false, true} {
		b := newBench(migration(), before())
		changes := 0
		b.hook(func(point string) error {
			if !strings.HasPrefix(point, "before changing") {
				return nil
			}
			switch changes++; {
			case changes <= 3 && !back, changes < 3:
				return nil
			case back && changes == 3: // the rollback begins by a failure that is none of rights
				return errors.New("broken")
			case !back && b.clock.now.Sub(newClock().now) > 4*time.Minute:
				return nil // what is taken back may be
			}
			return engine.Refused(errors.New("forbidden"))
		})
		outcome, err := b.run(t.Context())
		want := engine.EndRolledBack
		if back {
			want = engine.EndNeedsPerson
		}
		if err != nil || outcome.End != want || !strings.Contains(outcome.Cause, "forbidden (retried for 2m") {
			t.Errorf("back %t: %v, %s: %s", back, err, outcome.End, outcome.Cause)
		}
	}
}

// TestOverIsOver runs a migration again that is over: it says so and touches nothing.
func TestOverIsOver(t *testing.T) {
	for _, scenario := range scenarios() {
		b := newBench(migration(), before())
		scenario.setUp(b.world)
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines, changes := len(b.disk.lines), maps.Clone(b.world.changes)
		b.hook(func(point string) error { t.Errorf("%s: %s", scenario.name, point); return nil })
		outcome, err := b.run(t.Context())
		if err != nil || !outcome.Already || outcome.End != scenario.end || len(b.disk.lines) != lines ||
			!maps.Equal(b.world.changes, changes) {
			t.Errorf("%s: again: %+v, %v", scenario.name, outcome, err)
		}
	}
}

// TestGateComparesNodes: a gate that compares is told the nodes of its step and of those before it; one of an older
// plan says so itself. A gate that asks only some nodes is told those of its step.
func TestGateComparesNodes(t *testing.T) {
	named := step.Gate{Title: "named", Changed: []string{"z"}}
	p := &plan.Plan{Name: "p", Hash: "h", Steps: []step.Step{
		{ID: "before", Gate: gate("before")},
		{ID: "a", Node: "a", Gate: &step.Gate{Title: "a", Compare: true}},
		{ID: "b", Node: "b", Gate: &step.Gate{Title: "b", Compare: true}},
		{ID: "named", Gate: &named},
		{ID: "after", Gate: &step.Gate{Title: "after", Compare: true}},
		{ID: "near", Node: "n", Gate: &step.Gate{Title: "near", Near: true}},
	}}
	b := newBench(p, newWorld())
	outcome, err := b.run(t.Context())
	if err != nil || outcome.End != engine.EndDone {
		t.Fatalf("%+v, %v", outcome, err)
	}
	want := map[string][]string{"before": nil, "a": {"a"}, "b": {"a", "b"}, "named": {"z"}, "after": {"a", "b"},
		"near": {"n"}}
	if diff := cmp.Diff(want, b.world.compared); diff != "" {
		t.Errorf("asked with (-want +got):\n%s", diff)
	}
	if p.Steps[1].Gate.Changed != nil {
		t.Error("the plan was changed")
	}
}

// TestGateIsResult: a plan whose gate is its result goes on whatever the answer is, and asks it once.
func TestGateIsResult(t *testing.T) {
	result := gate("result")
	result.Result = true
	p := &plan.Plan{Name: "p", Hash: "h", Steps: []step.Step{{ID: "a", Gate: result}, {ID: "b"}}}
	b := newBench(p, newWorld())
	b.world.gates["result"] = false
	outcome, err := b.run(t.Context())
	if err != nil || outcome.End != engine.EndDone || len(outcome.State.Steps) != 2 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	if verdict := outcome.State.Steps[0].Verdict; verdict == nil || verdict.Pass {
		t.Errorf("the answer is %+v", verdict)
	}
}
