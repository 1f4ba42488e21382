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
	for _, at := range []string{"before doing join-a", "looking at no-pods"} {
		b := newBench(&plan.Plan{Name: "p", Hash: "h", Steps: []step.Step{
			{ID: "first", Actions: []step.Action{node("join-a", "a", step.VerbJoin)}},
			{ID: "last", NoReturn: true, Before: []step.Condition{{Is: step.NoPods{}}},
				Actions: []step.Action{node("join-b", "b", step.VerbJoin)}}}}, newWorld())
		b.world.desire = v1alpha1.DesireRun
		asked := false
		b.hook(func(point string) error {
			if point == at && !asked {
				asked, b.world.desire = true, v1alpha1.DesireRollback
			}
			return nil
		})
		outcome, err := engine.Run(t.Context(), b.plan, engine.Deps{Actor: b.world, Gate: b.world, Journal: b.disk,
			Control: &stale{world: b.world}, Clock: b.clock, By: "me", Theseus: "v0"})
		if err != nil || !asked || outcome.End != engine.EndStopped {
			t.Errorf("asked %s: %t, %+v, %v, want a rollback", at, asked, outcome, err)
		}
	}
}
