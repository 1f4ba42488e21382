package engine_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// randomAction draws an action over few objects, so that actions meet. Some fail: a patch of what is not there.
func randomAction(t *rapid.T, id string) step.Action {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "object")
	switch rapid.IntRange(0, 3).Draw(t, "op") {
	case 0:
		return apply(id, "ConfigMap", name, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "field"))
	case 1:
		return remove(id, "ConfigMap", name)
	case 2:
		return patch(id, "ConfigMap", name, rapid.SampledFrom([]string{`{"x":"1"}`, `{"x":null}`, `{"l":{"k":"v"}}`,
			`{"l":{"k":null}}`}).Draw(t, "patch"))
	}
	return node(id, name, rapid.SampledFrom([]string{step.VerbJoin, step.VerbPart, step.VerbActivate,
		step.VerbDeactivate}).Draw(t, "verb"))
}

// randomGroup draws an action, or the same on each of several nodes, to be done at once.
func randomGroup(t *rapid.T, id string) []step.Action {
	if rapid.Bool().Draw(t, "alone") {
		return []step.Action{randomAction(t, id)}
	}
	verb := rapid.SampledFrom([]string{step.VerbJoin, step.VerbPart, step.VerbActivate, step.VerbDeactivate}).Draw(t,
		"verb")
	var group []step.Action
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(2, 3).Draw(t, "nodes")] {
		group = append(group, node(id+name, name, verb))
	}
	return beside(group...)
}

// shuffled makes the calls of a group in any order.
func shuffled(t *rapid.T) func(calls []func()) {
	return func(calls []func()) {
		for _, call := range rapid.Permutation(calls).Draw(t, "order") {
			call()
		}
	}
}

func randomPlan(t *rapid.T) *plan.Plan {
	p := &plan.Plan{Name: "random", Hash: "h"}
	noReturn := rapid.IntRange(0, 8).Draw(t, "no return")
	for i := range rapid.IntRange(1, 5).Draw(t, "steps") {
		st := step.Step{ID: fmt.Sprintf("s%d", i), NoReturn: i == noReturn}
		for j := range rapid.IntRange(0, 4).Draw(t, "actions") {
			st.Actions = append(st.Actions, randomGroup(t, fmt.Sprintf("s%d-%d", i, j))...)
		}
		if rapid.Bool().Draw(t, "gate") {
			st.Gate = gate(st.ID)
		}
		p.Steps = append(p.Steps, st)
	}
	return p
}

// model is the dumb second engine: it does one action after the other and keeps a copy of the world.
func model(p *plan.Plan, w *world) (objects map[string]map[string]any, done bool) {
	for _, st := range p.Steps {
		for _, a := range st.Actions {
			if w.do(a) != nil {
				return w.objects, false
			}
		}
		if pass, set := w.gates[st.ID]; st.Gate != nil && set && !pass {
			return w.objects, false
		}
	}
	return w.objects, true
}

// TestRandomPlans runs random plans over random worlds with gates that fail, deaths and outages, and demands of
// every end what the end promises.
func TestRandomPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, initial := randomPlan(t), newWorld()
		for _, name := range []string{"a", "b"} {
			if rapid.Bool().Draw(t, "exists") {
				initial.objects["ConfigMap/"+name] = object("ConfigMap", name, "x").Object
			}
		}
		if len(p.Steps) > 1 && rapid.Bool().Draw(t, "a gate fails") {
			initial.gates[fmt.Sprintf("s%d", rapid.IntRange(0, len(p.Steps)-1).Draw(t, "which"))] = false
		}
		first := p.Steps[0]
		fails := !first.NoReturn && len(first.Actions) > 0 && rapid.Bool().Draw(t, "an action fails")
		if fails {
			initial.broken[first.Actions[rapid.IntRange(0, len(first.Actions)-1).Draw(t, "which action")].ID] = true
		}
		calm := newBench(p, initial.clone())
		if _, err := calm.run(context.Background()); err != nil {
			t.Fatal(err)
		}
		b := newBench(p, initial.clone())
		b.together = shuffled(t)
		outcome := trouble(t, b)
		expected, done := model(p, initial.clone())
		want := expected
		switch outcome.End {
		case engine.EndDone:
			if !done {
				t.Fatal("done, although something fails")
			}
		case engine.EndRolledBack, engine.EndStopped:
			want = initial.objects
		case engine.EndNeedsPerson:
			if done || !outcome.PastReturn {
				t.Fatalf("a person is needed for nothing: %+v", outcome)
			}
		case engine.EndPaused:
			if !outcome.PastReturn {
				t.Fatalf("paused, although a rollback was asked for: %+v", outcome)
			}
			return
		default:
			t.Fatalf("ended as %s", outcome.End)
		}
		if !reflect.DeepEqual(b.world.objects, want) {
			t.Fatalf("%s, but the world differs (-want +got):\n%s", outcome.End, cmp.Diff(want, b.world.objects))
		}
		if outcome.End != engine.EndStopped && !fails && !maps.Equal(calm.world.changes, b.world.changes) {
			t.Fatalf("changes differ (-calm +got):\n%s", cmp.Diff(calm.world.changes, b.world.changes))
		}
	})
}

// trouble runs a bench to its end with random deaths, outages and perhaps a rollback on request.
func trouble(t *rapid.T, b *bench) engine.Outcome {
	for i := range 8 {
		ctx, cancel := context.WithCancel(context.Background())
		fate := rapid.SampledFrom([]string{"none", "panic", "interrupt", "outage", "rollback"}).Draw(t, "fate")
		at, n := rapid.IntRange(1, 60).Draw(t, "at"), 0
		b.hook(func(string) error {
			if n++; n != at || i == 7 {
				return nil
			}
			switch fate {
			case "panic":
				panic(crash{})
			case "interrupt":
				cancel()
			case "outage":
				return engine.ErrUnavailable
			case "rollback":
				b.world.desire = v1alpha1.DesireRollback
			}
			return nil
		})
		outcome, err, died := b.survive(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if !died && outcome.End != engine.EndInterrupted {
			return outcome
		}
	}
	t.Fatal("it does not come to an end")
	return engine.Outcome{}
}
