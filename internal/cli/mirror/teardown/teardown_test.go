package teardown

import (
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestLastMove: caches are waited for from the last swap of records on, forth or back, whatever the IDs of actions are.
func TestLastMove(t *testing.T) {
	swap, see := step.DNS{Verb: shift.Swap}, step.DNS{Verb: shift.See}
	steps := []step.Step{{ID: "over", Actions: []step.Action{{ID: "a", Do: swap}, {ID: "over/swap-2", Do: see}},
		Undo: []step.Action{{ID: "back", Do: swap}}}}
	begin := time.Unix(1700000000, 0)
	at := func(second int, r engine.Record) engine.Record {
		r.At = begin.Add(time.Duration(second) * time.Second)
		return r
	}
	for want, records := range map[int][]engine.Record{
		1: {at(1, engine.Record{Event: engine.Acted, Action: "a"}),
			at(2, engine.Record{Event: engine.Acted, Action: "over/swap-2"})},
		3: {at(1, engine.Record{Event: engine.Acted, Action: "a"}),
			at(3, engine.Record{Event: engine.Acted, Action: "back"})},
		5: {at(1, engine.Record{Event: engine.Intended, Action: "a",
			Inverse: &step.Action{ID: "a/undo", Do: step.DNS{Verb: shift.Swap}}}),
			at(5, engine.Record{Event: engine.Acted, Action: "a/undo"}),
			at(6, engine.Record{Event: engine.Intended, Action: "a/undo"})},
	} {
		if got := lastMove(steps, records); !got.Equal(begin.Add(time.Duration(want) * time.Second)) {
			t.Errorf("the last move is %s after the begin, not %d s", got.Sub(begin), want)
		}
	}
	if got := lastMove(steps, []engine.Record{at(1, engine.Record{Event: engine.Acted, Action: "x"})}); !got.IsZero() {
		t.Errorf("a move of no swap: %s", got)
	}
}
