package engine_test

import (
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestAskedBy: the journal has who asked for a pause, for the continuation and for a rollback, where that is known.
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
}
