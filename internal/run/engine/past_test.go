package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// readBefore is a journal that must not be read.
type readBefore struct {
	*disk
	t *testing.T
}

func (r readBefore) Records(context.Context) ([]engine.Record, error) {
	r.t.Error("the journal is read again")
	return nil, errBroken
}

// TestPast: a run whose caller has read the journal does not read it again. It verifies what it gets as if it had read
// it, and changes nothing if the journal has more.
func TestPast(t *testing.T) {
	interrupted := func() *bench {
		b := newBench(&plan.Plan{Name: "p", Hash: "h", Steps: []step.Step{
			{ID: "first", Actions: []step.Action{node("join-a", "a", step.VerbJoin)}},
			{ID: "second", Actions: []step.Action{node("join-b", "b", step.VerbJoin)}}}}, newWorld())
		stop := make(chan struct{})
		b.hook(func(point string) error {
			if point == "before doing join-a" {
				close(stop)
			}
			return nil
		})
		outcome, err := engine.Run(t.Context(), b.plan, engine.Deps{Actor: b.world, Gate: b.world, Journal: b.disk,
			Control: b.world, Clock: b.clock, Stop: stop, By: "me", Theseus: "v0"})
		if err != nil || outcome.End != engine.EndInterrupted || len(b.disk.records) < 4 {
			t.Fatalf("%+v, %v", outcome, err)
		}
		return b
	}
	for name, test := range map[string]struct {
		past func([]engine.Record) []engine.Record
		want string // in the error, if the run does not go on
	}{
		"as it is": {func(all []engine.Record) []engine.Record { return all }, ""},
		"edited": {func(all []engine.Record) []engine.Record {
			all[1].Step = "other"
			return all
		}, "the journal was changed after it was written: record 2"},
		"without its last record": {func(all []engine.Record) []engine.Record { return all[:len(all)-1] }, "record "},
	} {
		t.Run(name, func(t *testing.T) {
			b := interrupted()
			did := 0
			b.hook(func(point string) error {
				if strings.HasPrefix(point, "before doing") {
					did++
				}
				return nil
			})
			_, err := engine.Run(t.Context(), b.plan, engine.Deps{Actor: b.world, Gate: b.world,
				Journal: readBefore{b.disk, t}, Past: test.past(slices.Clone(b.disk.records)), Control: b.world,
				Clock: b.clock, By: "me", Theseus: "v0"})
			if test.want == "" && (err != nil || did == 0) ||
				test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || did > 0) {
				t.Errorf("did %d actions: %v, want %q", did, err, test.want)
			}
		})
	}
}
