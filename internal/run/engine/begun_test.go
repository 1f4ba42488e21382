package engine_test

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestBeginsOnce: no step begins twice, whatever copies of the state have begun; one that was undone alone does.
func TestBeginsOnce(t *testing.T) {
	add := func(s *engine.State, event engine.Event, step string) error {
		r := engine.Record{Seq: s.Seq + 1, Event: event, Step: step}
		if event == engine.Started {
			r.Data = []byte(`{"plan":"h"}`)
		}
		return s.Add(r)
	}
	must := func(s *engine.State, event engine.Event, step string) {
		t.Helper()
		if err := add(s, event, step); err != nil {
			t.Fatalf("%s %s: %v", event, step, err)
		}
	}
	twice := func(s *engine.State, step string) {
		t.Helper()
		if err := add(s, engine.StepBegan, step); err == nil || !strings.Contains(err.Error(), "begins twice") {
			t.Errorf("step %s begins again: %v", step, err)
		}
	}
	s := engine.State{Phase: engine.PhaseNew}
	must(&s, engine.Started, "")
	for _, step := range []string{"a", "b"} {
		must(&s, engine.StepBegan, step)
		must(&s, engine.StepDone, step)
	}
	twice(&s, "a")
	twice(&s, "b")

	other := s // what it begins, the first one has not begun
	must(&other, engine.StepBegan, "c")
	must(&other, engine.StepDone, "c")
	must(&other, engine.StepBegan, "d")
	must(&s, engine.StepBegan, "d")
	must(&s, engine.StepDone, "d")
	twice(&s, "d")
	must(&other, engine.StepDone, "d")
	twice(&other, "c")
	twice(&other, "d")

	must(&s, engine.StepBegan, "c")
	must(&s, engine.TakingBack, "c")
	must(&s, engine.StepUndone, "c")
	must(&s, engine.Resumed, "")
	must(&s, engine.StepBegan, "c")
	must(&s, engine.StepDone, "c")
	twice(&s, "c")
	twice(&s, "a")
}
