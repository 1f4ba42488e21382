package guarded

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// done is a cluster in which everything that is not the guard's is done at once.
type done struct{}

func (done) Observe(context.Context, step.Action, json.RawMessage) (engine.Observation, error) {
	return engine.Observation{}, nil
}
func (done) Do(context.Context, step.Action, json.RawMessage) (json.RawMessage, error) {
	return nil, nil
}
func (done) Holds(context.Context, step.Condition) (bool, string, error) { return true, "", nil }

// asks has an answer for each of the two gates.
type asks struct{ before, after engine.Verdict }

func (a asks) Ask(_ context.Context, gate step.Gate, _ func(context.Context) error) (engine.Verdict, error) {
	if gate.Result {
		return a.after, nil
	}
	return a.before, nil
}

// runs asks for nothing but the run.
type runs struct{}

func (runs) Desire(context.Context) (v1alpha1.Desire, error) { return v1alpha1.DesireRun, nil }

// torn is a journal that cannot be written from the outcome of the command on.
type torn struct{ engine.Journal }

func (j torn) Append(ctx context.Context, records ...engine.Record) error {
	for _, r := range records {
		if r.Step == guard.StepCommand && r.Event == engine.Acted {
			return errors.New("torn")
		}
	}
	return j.Journal.Append(ctx, records...)
}

// guardOf plans to guard changes of others, or a command that leaves a line in a file each time it runs.
func guardOf(t *testing.T, guarded kind.Guard) (p *plan.Plan, times func() int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ran")
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	guarded.Quiet, guarded.AtMost = step.Duration(3*time.Second), step.Duration(time.Minute)
	if !guarded.Others {
		guarded.Command = []string{"sh", "-c", "echo ran >>" + file}
	}
	draft, err := guard.Propose(&kind.Request{Snapshot: snapshot,
		Change: v1alpha1.ChangeSpec{AgentImage: "theseus.dev/agent:dev"}, Drivers: drivers.All(),
		Options: plan.Options{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Name: "g"}},
		guarded)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = plan.Seal(snapshot, draft); err != nil {
		t.Fatal(err)
	}
	return p, func() int {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), "ran\n")
	}
}

// TestRun: the engine carries a guard out. A lost probe does not turn it back, one in the baseline does before the
// command is run.
func TestRun(t *testing.T) {
	good, bad := engine.Verdict{Pass: true}, engine.Verdict{Lost: 3, Reason: "3 lost"}
	for name, test := range map[string]struct {
		asks
		end   engine.End
		times int
		steps int // that were done, and not undone
	}{
		"good":             {asks{good, good}, engine.EndDone, 1, 6},
		"lost":             {asks{good, bad}, engine.EndDone, 1, 6},
		"lossy before":     {asks{bad, good}, engine.EndRolledBack, 0, 0},
		"lossy throughout": {asks{bad, bad}, engine.EndRolledBack, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, times := guardOf(t, kind.Guard{})
			a, _, clock := bench(*p.Guarded)
			a.Actor = done{}
			outcome, err := engine.Run(t.Context(), p,
				engine.Deps{Actor: a, Gate: test.asks, Journal: &journal.Memory{}, Control: runs{}, Clock: clock})
			if err != nil || outcome.End != test.end || times() != test.times {
				t.Fatalf("%+v, %v; the command ran %d times", outcome, err, times())
			}
			n := 0
			for _, s := range outcome.State.Steps {
				if s.Done && !s.Undone {
					n++
				}
			}
			if n != test.steps {
				t.Errorf("%d steps are done, want %d", n, test.steps)
			}
		})
	}
}

// presses is a gate during whose measurements the user interrupts.
type presses struct {
	asks
	interrupt func()
}

func (p presses) Ask(ctx context.Context, gate step.Gate, heed func(context.Context) error) (engine.Verdict, error) {
	if gate.Result {
		p.interrupt()
	}
	if err := heed(ctx); err != nil {
		return engine.Verdict{}, err
	}
	return p.asks.Ask(ctx, gate, heed)
}

// TestInterruptedGate: an interrupt while the gate of the result measures does not discard the verdict, in the process
// that watched and in one that continues.
func TestInterruptedGate(t *testing.T) {
	lost := engine.Verdict{Lost: 3, Reason: "3 lost"}
	p, _ := guardOf(t, kind.Guard{})
	records := &journal.Memory{}
	run := func(press func(a *Actor, stop chan struct{})) engine.Outcome {
		a, _, clock := bench(*p.Guarded)
		a.Actor, a.Result = done{}, guard.StepWatch
		past, _ := records.Records(t.Context())
		for _, r := range past {
			a.Learn(r)
		}
		stop := make(chan struct{})
		outcome, err := engine.Run(t.Context(), p,
			engine.Deps{Actor: a, Journal: records, Control: runs{}, Clock: clock, Stop: stop, Notify: a.Learn,
				Gate: presses{asks{engine.Verdict{Pass: true}, lost}, func() { press(a, stop) }}})
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	// as if it was killed
	if outcome := run(func(_ *Actor, stop chan struct{}) { close(stop) }); outcome.End != engine.EndInterrupted {
		t.Fatalf("%+v", outcome)
	}
	for range 2 {
		outcome := run(func(a *Actor, stop chan struct{}) {
			if !a.Interrupt() {
				close(stop)
			}
		})
		all, _ := records.Records(t.Context())
		if r := result.Of(p, all); outcome.End != engine.EndDone || r.After == nil || r.After.Lost != 3 {
			t.Errorf("%+v: %+v", outcome, r)
		}
		records = &journal.Memory{}
	}
}

// TestOthers: a run that measures what others change stands between two steps without a process, takes marks, and goes
// on to its result when the user says so; or it is taken back without one.
func TestOthers(t *testing.T) {
	for name, back := range map[string]bool{"stop": false, "rollback": true} {
		t.Run(name, func(t *testing.T) {
			p, _ := guardOf(t, kind.Guard{Others: true})
			a, _, clock := bench(*p.Guarded)
			a.Actor = done{}
			ended, records := false, &journal.Memory{}
			deps := engine.Deps{Actor: a, Gate: asks{engine.Verdict{Pass: true}, engine.Verdict{Pass: true}},
				Journal: records, Control: runs{}, Clock: clock,
				Hold: func(_ context.Context, next *step.Step) (engine.Hold, error) {
					if next.Awaits() && !ended {
						return engine.Hold{Result: engine.ResultMeasuring, Cause: "measures"}, nil
					}
					return engine.Hold{}, nil
				}}
			for range 2 { // a process that continues too early changes nothing
				outcome, err := engine.Run(t.Context(), p, deps)
				if err != nil || outcome.End != engine.EndPaused || !outcome.State.Measures() || outcome.PastReturn ||
					outcome.State.DoneSteps() != 2 {
					t.Fatalf("%+v, %v", outcome, err)
				}
				if stand := engine.Judge(p.Steps, outcome.State, false); stand.Word != "measuring" ||
					stand.Resume != "" || !strings.Contains(stand.Ways, "theseus guard stop") {
					t.Errorf("it stands: %+v", stand)
				}
			}
			if err := engine.Mark(t.Context(), p, engine.Deps{Journal: records, Clock: clock, By: "ann@laptop"},
				"node pool b"); err != nil {
				t.Fatal(err)
			}
			want := engine.EndDone
			if ended = true; back {
				ended, deps.Control, want = false, rollsBack{}, engine.EndStopped
			}
			outcome, err := engine.Run(t.Context(), p, deps)
			if err != nil || outcome.End != want || outcome.State.By != "" {
				t.Fatalf("%+v, %v", outcome, err)
			}
			all, _ := records.Records(t.Context())
			marks := 0
			for _, r := range all {
				if engine.MarkOf(r) == "node pool b" && r.By == "ann@laptop" {
					marks++
				}
			}
			if marks != 1 {
				t.Errorf("%d marks", marks)
			}
			if err := engine.Mark(t.Context(), p, engine.Deps{Journal: records, Clock: clock}, "late"); err == nil {
				t.Error("a run that has ended took a mark")
			}
		})
	}
}

// rollsBack asks for a rollback.
type rollsBack struct{}

func (rollsBack) Desire(context.Context) (v1alpha1.Desire, error) {
	return v1alpha1.DesireRollback, nil
}

// TestRunAgain: a run that ended while the command ran continues with the watching: the command does not run twice.
func TestRunAgain(t *testing.T) {
	p, times := guardOf(t, kind.Guard{})
	a, _, clock := bench(*p.Guarded)
	a.Actor = done{}
	records := &journal.Memory{}
	deps := engine.Deps{Actor: a, Gate: asks{engine.Verdict{Pass: true}, engine.Verdict{Pass: true}},
		Journal: torn{records}, Control: runs{}, Clock: clock}
	if _, err := engine.Run(t.Context(), p, deps); err == nil || times() != 1 {
		t.Fatalf("%v; the command ran %d times", err, times())
	}
	deps.Journal = records
	outcome, err := engine.Run(t.Context(), p, deps)
	if err != nil || outcome.End != engine.EndDone || times() != 1 {
		t.Fatalf("%+v, %v; the command ran %d times", outcome, err, times())
	}
	all, err := records.Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unknown := 0
	for _, r := range all {
		var ran result.Ran
		if r.Event == engine.Acted && r.Step == guard.StepCommand &&
			json.Unmarshal(r.Data, &ran) == nil && ran.Unknown {
			unknown++
		}
	}
	if unknown != 1 {
		t.Errorf("%d records say that the end of the command is not known", unknown)
	}
}

// TestRunNewPods: the journal of a guard proves what became of new pods. Those that fail do not turn it back, and what
// failed before the change is known after it.
func TestRunNewPods(t *testing.T) {
	good := engine.Verdict{Pass: true}
	for name, test := range map[string]struct {
		from  int // the round from which new pods of the first node fail; 0 for never
		proof result.Proof
	}{"good": {0, result.Good}, "fails after": {3, result.Lost}, "failed before": {1, result.Unproven}} {
		t.Run(name, func(t *testing.T) {
			p, times := guardOf(t, kind.Guard{})
			a, out, _ := bench(*p.Guarded)
			clock := &ticking{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
			a.Actor, a.Clock, a.Nodes, a.Tries = done{}, clock, p.Cluster.Nodes, result.NewPodsAction(p.Steps)
			a.Maker = &maker{become: func(round int, one *kube.NewPod) {
				if test.from > 0 && round >= test.from && one.Node == p.Cluster.Nodes[0] {
					one.Failed = "no address within 1m0s: FailedCreatePodSandBox: no plugin"
				}
			}}
			records := &journal.Memory{}
			outcome, err := engine.Run(t.Context(), p, engine.Deps{Actor: a, Gate: asks{good, good}, Journal: records,
				Control: runs{}, Clock: clock, Notify: a.Learn})
			if err != nil || outcome.End != engine.EndDone || times() != 1 {
				t.Fatalf("%+v, %v; the command ran %d times", outcome, err, times())
			}
			all, err := records.Records(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r := result.Of(p, all)
			proof, why := r.Judge()
			if proof != test.proof || (test.from > 0) != strings.Contains(why, "no plugin") || r.NewPodsBefore == nil ||
				r.NewPods() == nil {
				t.Errorf("%s, %q; %+v", proof, why, r)
			}
			if out.has("NEW POD FAILED") != (test.proof == result.Lost) {
				t.Errorf("said %q", out.lines)
			}
		})
	}
}
