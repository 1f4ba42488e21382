// Package verify proves plans: it takes rules, each a value, over every prefix of a plan and over the undo of each of
// its steps. The rules here hold for every plan, whatever its kind; a kind adds those that know what its steps mean.
package verify

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// General are the rules for every plan, in the order in which they are asked; own is the kind that it is of.
func General(p *kind.Plan, own kind.Kind) []kind.Rule {
	return []kind.Rule{exempted(p), retains(p, own), redactedNowhere(), allowedTasks(), unique(), grouped(),
		together(), abreast(p), near(), windows(p, own)}
}

// Hold takes each of some rules over a plan. The error names the step.
func Hold(p *kind.Plan, rules []kind.Rule) error {
	for i := range rules {
		if err := follow(p, &rules[i]); err != nil {
			return err
		}
	}
	return nil
}

// follow takes one rule over every prefix of a plan.
func follow(p *kind.Plan, rule *kind.Rule) error {
	for i := range p.Steps {
		s := &p.Steps[i]
		if err := forward(s, rule); err != nil {
			return fmt.Errorf("step %s: %w", s.ID, err)
		}
		if rule.Undo == nil {
			continue
		}
		if err := rule.Undo(s); err != nil {
			return fmt.Errorf("undo of step %s: %w", s.ID, err)
		}
	}
	if rule.End != nil {
		return rule.End()
	}
	return nil
}

// forward takes a rule over a step.
func forward(s *step.Step, rule *kind.Rule) error {
	if rule.Before != nil {
		if err := rule.Before(s); err != nil {
			return err
		}
	}
	for i := range s.Actions {
		if err := one(s, &s.Actions[i], rule); err != nil {
			return err
		}
	}
	if rule.After != nil {
		return rule.After(s)
	}
	return nil
}

// one takes a rule over an action.
func one(s *step.Step, a *step.Action, rule *kind.Rule) error {
	if rule.Act != nil {
		if err := rule.Act(s, a); err != nil {
			return fmt.Errorf("action %s (%s): %w", a.ID, a.Title, err)
		}
	}
	if rule.Each == nil {
		return nil
	}
	if err := rule.Each(); err != nil {
		return fmt.Errorf("after action %s (%s): %w", a.ID, a.Title, err)
	}
	return nil
}
