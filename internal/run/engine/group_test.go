package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// outageInGroup is a run of one group on five nodes, the first of which is done when the API server goes away for some
// time. sizes are the numbers of actions that were tried together.
func outageInGroup(t *testing.T, away time.Duration) (b *bench, sizes *[]int) {
	t.Helper()
	var actions []step.Action
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		actions = append(actions, node("join-"+name, name, step.VerbJoin))
	}
	b = newBench(&plan.Plan{Name: "p", Hash: "h",
		Steps: []step.Step{{ID: "join", Actions: beside(actions...), Gate: gate("joined")}}}, newWorld())
	sizes = &[]int{}
	b.together = func(calls []func()) {
		*sizes = append(*sizes, len(calls))
		for _, call := range calls {
			call()
		}
	}
	var back time.Time
	b.hook(func(point string) error {
		if point == "before doing join-b" && back.IsZero() {
			back = b.clock.now.Add(away)
		}
		if b.clock.now.Before(back) {
			return engine.ErrUnavailable
		}
		return nil
	})
	return b, sizes
}

// TestOutageInGroup: after an outage in the middle of a group, the rest of the group is done together.
func TestOutageInGroup(t *testing.T) {
	b, sizes := outageInGroup(t, 20*time.Second)
	outcome, err := b.run(t.Context())
	if err != nil || outcome.End != engine.EndDone {
		t.Fatalf("%+v, %v", outcome, err)
	}
	// the looks, the first tries, and the tries after the outage
	if want := []int{5, 5, 4}; !slices.Equal(*sizes, want) {
		t.Errorf("tried together: %v, want %v", *sizes, want)
	}
}

// TestPauseInGroup: a pause, a rollback or a stop that is requested during the outage is followed before the rest of
// the group begins, and the next run continues with the rest together.
func TestPauseInGroup(t *testing.T) {
	for _, asked := range []struct {
		desire v1alpha1.Desire
		end    engine.End
	}{{v1alpha1.DesirePause, engine.EndPaused}, {v1alpha1.DesireRollback, engine.EndStopped}} {
		t.Run(string(asked.desire), func(t *testing.T) {
			b, sizes := outageInGroup(t, 20*time.Second)
			b.world.desire = v1alpha1.DesireRun
			hook := b.world.hook
			b.hook(func(point string) error {
				err := hook(point)
				if err != nil {
					b.world.desire = asked.desire
				}
				return err
			})
			outcome, err := b.run(t.Context())
			if err != nil || outcome.End != asked.end {
				t.Fatalf("%+v, %v", outcome, err)
			}
			for name := range b.world.objects {
				if name != "Agent/a" || asked.end == engine.EndStopped {
					t.Errorf("%s was changed after the %s", name, asked.desire)
				}
			}
			if asked.end == engine.EndStopped {
				return
			}
			*sizes, b.world.desire = nil, v1alpha1.DesireRun
			if outcome, err = b.run(t.Context()); err != nil || outcome.End != engine.EndDone {
				t.Fatalf("resumed: %+v, %v", outcome, err)
			}
			if want := []int{4, 4}; !slices.Equal(*sizes, want) || len(b.world.objects) != 5 {
				t.Errorf("resumed together: %v, want %v; %d nodes", *sizes, want, len(b.world.objects))
			}
		})
	}
}

// TestOutageInGroupLasts: an outage that does not end ends the run, and the next one continues.
func TestOutageInGroupLasts(t *testing.T) {
	b, _ := outageInGroup(t, 11*time.Minute)
	outcome, err := b.run(t.Context())
	if fmt.Sprint(outcome.End) != "needs-person" {
		t.Fatalf("%+v, %v", outcome, err)
	}
	b.clock.now = b.clock.now.Add(10 * time.Minute)
	if outcome, err = b.run(t.Context()); err != nil || outcome.End != engine.EndDone {
		t.Fatalf("resumed: %+v, %v", outcome, err)
	}
}

// conditionsOfMany is a run whose step waits for three objects, of which c does not exist; one condition is there
// twice.
func conditionsOfMany(t *testing.T) (b *bench, sizes *[]int) {
	t.Helper()
	var before []step.Condition
	for _, name := range []string{"a", "b", "a", "c"} {
		before = append(before, step.Condition{Is: step.Established{Ref: configMapRef(name)}})
	}
	b = newBench(&plan.Plan{Name: "p", Hash: "h", Steps: []step.Step{{ID: "s", Before: before,
		Actions: []step.Action{node("join", "n", step.VerbJoin)}, Gate: gate("joined")}}}, newWorld())
	for _, name := range []string{"a", "b"} {
		b.world.objects[configMapRef(name).String()] = map[string]any{}
	}
	sizes = &[]int{}
	b.together = func(calls []func()) {
		*sizes = append(*sizes, len(calls))
		for _, call := range calls {
			call()
		}
	}
	return b, sizes
}

func configMapRef(name string) step.Ref {
	return step.Ref{APIVersion: "v1", Kind: "ConfigMap", Name: name}
}

// TestConditionsTogether: conditions are looked at together, each once; one that does not hold is waited for, and an
// outage is tried again.
func TestConditionsTogether(t *testing.T) {
	b, sizes := conditionsOfMany(t)
	looked := 0
	b.hook(func(point string) error {
		if point != "looking at established" {
			return nil
		}
		if looked++; looked == 2 {
			return engine.ErrUnavailable
		}
		if looked == 12 {
			b.world.objects[configMapRef("c").String()] = map[string]any{}
		}
		return nil
	})
	outcome, err := b.run(t.Context())
	if err != nil || outcome.End != engine.EndDone {
		t.Fatalf("%+v, %v", outcome, err)
	}
	if len(*sizes) < 2 || slices.Max(*sizes) != 3 || slices.Min(*sizes) != 3 || looked < 12 {
		t.Errorf("looked together: %v, %d looks", *sizes, looked)
	}
}

// TestConditionsAfterAnOutage: when one of the conditions that are looked at together meets an outage, what was seen of
// the others before it does not count.
func TestConditionsAfterAnOutage(t *testing.T) {
	b, _ := conditionsOfMany(t)
	b.plan.Steps[0].Before = []step.Condition{{Is: step.Established{Ref: configMapRef("a")}},
		{Is: step.Established{Ref: configMapRef("b")}}}
	first := configMapRef("a").String()
	looked := 0
	b.hook(func(point string) error {
		switch point {
		case "before doing join":
			if b.world.objects[first] == nil {
				t.Error("the step began, but its first condition has not held since the outage")
			}
		case "looking at established":
			switch looked++; looked {
			case 2:
				delete(b.world.objects, first)
				return engine.ErrUnavailable
			case 9:
				b.world.objects[first] = map[string]any{}
			}
		}
		return nil
	})
	if outcome, err := b.run(t.Context()); err != nil || outcome.End != engine.EndDone || looked < 9 {
		t.Fatalf("%+v, %v, %d looks", outcome, err, looked)
	}
}

// TestConditionFailsTogether: what a look at one of several conditions finds, such as a pod that never starts, ends the
// run. It is not looked for again, as it may be found only from time to time.
func TestConditionFailsTogether(t *testing.T) {
	b, _ := conditionsOfMany(t)
	looked := 0
	b.hook(func(point string) error {
		if point == "looking at established" {
			if looked++; looked == 2 {
				return errBroken
			}
		}
		return nil
	})
	outcome, err := b.run(t.Context())
	if err == nil && outcome.End == engine.EndDone || looked != 2 {
		t.Errorf("%+v, %v, %d looks", outcome, err, looked)
	}
}
