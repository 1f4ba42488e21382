package engine_test

import (
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestAskedBy: the journal has who asked for a pause, for the continuation and for a rollback, where that is known. It
// names no one for a restart, and for a window that opens.
func TestAskedBy(t *testing.T) {
	for _, known := range []string{"ann", ""} {
		b, _ := outageInGroup(t, 0)
		b.world.desire, b.world.askedBy = v1alpha1.DesirePause, known
		if outcome, err := b.run(t.Context()); err != nil || outcome.End != engine.EndPaused {
			t.Fatalf("%+v, %v", outcome, err)
		}
		b.world.desire = v1alpha1.DesireRollback
		if outcome, err := b.run(t.Context()); err != nil || outcome.End != engine.EndStopped {
			t.Fatalf("%+v, %v", outcome, err)
		}
		seen := map[engine.Event]bool{}
		for _, r := range b.disk.records {
			want := ""
			if r.Event == engine.Paused || r.Event == engine.Resumed || r.Event == engine.RollingBack {
				seen[r.Event], want = true, known
			}
			if got := engine.AskedBy(r); got != want {
				t.Errorf("%s is asked by %q, want %q", r.Event, got, want)
			}
		}
		if len(seen) != 3 {
			t.Errorf("the journal has %v", seen)
		}
	}
	b, _ := outageInGroup(t, 0)
	b.world.askedBy, b.world.closed = "ann", true // she asked for something earlier
	run := func(stop <-chan struct{}) engine.Outcome {
		t.Helper()
		outcome, err := engine.Run(t.Context(), b.plan,
			engine.Deps{Actor: b.world, Gate: b.world, Journal: b.disk, Control: b.world, Clock: b.clock,
				Hold: b.world.hold, Stop: stop, By: "the controller", Theseus: "v0"})
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	if outcome := run(nil); outcome.State.Held != engine.ResultOutsideWindow {
		t.Fatalf("%+v", outcome)
	}
	b.world.closed = false // the window opens
	stopped := make(chan struct{})
	close(stopped)
	if outcome := run(stopped); outcome.End != engine.EndInterrupted {
		t.Fatalf("%+v", outcome)
	}
	if outcome := run(nil); outcome.End != engine.EndDone { // the process has been restarted
		t.Fatalf("%+v", outcome)
	}
	resumed := 0
	for _, r := range b.disk.records {
		if r.Event == engine.Resumed {
			resumed++
		}
		if by := engine.AskedBy(r); by != "" {
			t.Errorf("%s is asked by %q", r.Event, by)
		}
	}
	if resumed != 2 {
		t.Errorf("it continued %d times", resumed)
	}
}
