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

// TestHalf: the journal keeps what an adoption or an eviction that failed says of each pod. Other actions that failed
// have no answer, since readers take one for that of an action which is done.
func TestHalf(t *testing.T) {
	for _, test := range []struct {
		action step.Action
		want   string
	}{
		{step.Action{Do: step.Node{Verb: step.VerbAdopt, NodeName: "n"}}, `{"node":"n"}`},
		{step.Action{Do: step.Evict{Pods: step.PodSet{Node: "n"}}}, `{"node":"n"}`},
		{step.Action{Do: step.Node{Verb: step.VerbJoin, NodeName: "n"}}, ""},
	} {
		test.action.ID = "a"
		b := newBench(&plan.Plan{Name: "p", Hash: "h", Steps: []step.Step{{ID: "s", Alone: true,
			Actions: []step.Action{test.action}}}}, newWorld())
		if _, err := engine.Run(t.Context(), b.plan, engine.Deps{Actor: halfway{b.world}, Gate: b.world,
			Journal: b.disk, Control: b.world, Clock: b.clock, By: "tester@here", Theseus: "v0"}); err != nil {
			t.Fatal(err)
		}
		failed, name := 0, string(test.action.Op())+" "+test.action.Verb()
		for _, r := range b.disk.records {
			if r.Event == engine.Acted && r.Result == engine.ResultFailed && !r.Undo {
				failed++
				if string(r.Data) != test.want {
					t.Errorf("%s: the journal has the answer %q, want %q", name, r.Data, test.want)
				}
			}
		}
		if failed == 0 {
			t.Errorf("%s did not fail", name)
		}
	}
}
