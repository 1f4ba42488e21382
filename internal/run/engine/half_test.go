package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// halfway is a world whose agents fail with an answer.
type halfway struct{ *world }

func (h halfway) Observe(context.Context, step.Action, json.RawMessage) (engine.Observation, error) {
	return engine.Observation{}, nil
}

func (h halfway) Do(context.Context, step.Action, json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`{"node":"n"}`), errors.New("one pod was not moved")
}

// TestHalf: the journal keeps what an adoption that failed says of each pod. Other actions that failed have no answer,
// since readers take one for that of an action which is done.
func TestHalf(t *testing.T) {
	for verb, want := range map[string]string{step.VerbAdopt: `{"node":"n"}`, step.VerbJoin: ""} {
		b := newBench(&plan.Plan{Name: "p", Hash: "h", Steps: []step.Step{{ID: "s", Alone: true,
			Actions: []step.Action{{ID: "a", Op: step.Node, Verb: verb, NodeName: "n"}}}}}, newWorld())
		if _, err := engine.Run(t.Context(), b.plan, engine.Deps{Actor: halfway{b.world}, Gate: b.world,
			Journal: b.disk, Control: b.world, Clock: b.clock, By: "tester@here", Theseus: "v0"}); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, r := range b.disk.records {
			if r.Event == engine.Acted && r.Result == engine.ResultFailed && !r.Undo {
				failed++
				if string(r.Data) != want {
					t.Errorf("%s: the journal has the answer %q, want %q", verb, r.Data, want)
				}
			}
		}
		if failed == 0 {
			t.Errorf("%s did not fail", verb)
		}
	}
}
