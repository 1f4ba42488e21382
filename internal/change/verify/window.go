package verify

import (
	"errors"
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// windows hold a plan to its windows: a run stops only where the kind of change says that the cluster may be left, it
// checks the cluster before it continues, and the steps of each window fit into it.
func windows(p *kind.Plan, own kind.Kind) kind.Rule {
	var places []kind.Stop
	if own.Stops != nil && slices.ContainsFunc(p.Steps, func(s step.Step) bool { return s.Stop }) {
		places = own.Stops(p)
	}
	at, sum := -1, step.Duration(0)
	return kind.Rule{Before: func(s *step.Step) error {
		at++
		if s.Stop {
			sum = 0
			if err := stop(p, at, places); err != nil {
				return err
			}
		}
		if sum += s.Estimate; p.Window > 0 && sum > p.Window {
			return fmt.Errorf("with the steps before it, it takes %s, which is longer than a window", sum.About())
		}
		return nil
	}}
}

// stop demands that a run may stop before the step of an index, and that the step checks the cluster and does nothing
// else.
func stop(p *kind.Plan, at int, places []kind.Stop) error {
	s := &p.Steps[at]
	if p.Window <= 0 {
		return errors.New("the run would stop before it, but the plan has no windows")
	}
	i := slices.IndexFunc(places, func(place kind.Stop) bool { return place.After == at-1 })
	if i < 0 {
		return errors.New("the run would stop before it, where the cluster must not be left for hours")
	}
	switch {
	case len(s.Actions)+len(s.Undo) > 0 || s.NoReturn || !s.Alone:
		return errors.New("the run stops before it, but it does more than check the cluster")
	case s.Gate == nil || s.Gate.Baseline || s.Gate.Compares() || s.Gate.Result:
		return errors.New("the run stops before it, but no gate checks that nothing is lost")
	case !slices.ContainsFunc(s.Before, func(c step.Condition) bool { return c.Kind() == step.KindNodesAmong }):
		// the kind's rules know which
		return errors.New("the run stops before it, but it does not check whether nodes were added")
	}
	for _, agent := range places[i].Agents {
		if !slices.ContainsFunc(s.After,
			func(c step.Condition) bool { return c.Is == step.Rolled{Ref: agent} }) {
			return fmt.Errorf("the run stops before it, but it does not check %s", agent)
		}
	}
	return nil
}
