package engine_test

import (
	"context"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// stale answers as at its last read, until it is told to read again.
type stale struct {
	*world
	known v1alpha1.Desire
}

func (s *stale) Desire(ctx context.Context) (v1alpha1.Desire, error) {
	if s.known != "" {
		return s.known, nil
	}
	desire, err := s.world.Desire(ctx)
	s.known = desire
	return desire, err
}

// Fresh implements engine.Fresher.
func (s *stale) Fresh() { s.known = "" }

// TestFreshBeforeNoReturn: a rollback that was asked for just before the point of no return is done, although the
// answer before is still in use.
func TestFreshBeforeNoReturn(t *testing.T) {
	b := newBench(&plan.Plan{Name: "p", Hash: "h", Steps: []step.Step{
		{ID: "first", Actions: []step.Action{node("join-a", "a", step.VerbJoin)}},
		{ID: "last", NoReturn: true, Actions: []step.Action{node("join-b", "b", step.VerbJoin)}}}}, newWorld())
	b.hook(func(point string) error {
		if point == "before doing join-a" {
			b.world.desire = v1alpha1.DesireRollback
		}
		return nil
	})
	outcome, err := engine.Run(t.Context(), b.plan, engine.Deps{Actor: b.world, Gate: b.world, Journal: b.disk,
		Control: &stale{world: b.world}, Clock: b.clock, By: "me", Theseus: "v0"})
	if err != nil || outcome.End != engine.EndRolledBack {
		t.Errorf("%+v, %v, want a rollback", outcome, err)
	}
}
