package plan

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/proof/signal"
)

// Verify proves a plan on every prefix: by the rules for all plans, by those of every kind of change that it concerns,
// and so the plan within it, where one is. The error names the step.
func Verify(p *Plan) error {
	if _, err := signal.ParseAll(p.Change.SLO); err != nil {
		return fmt.Errorf("signal %w", err)
	}
	rules, err := rulesOf(p)
	if err != nil {
		return err
	}
	if err := verify.Hold(p, append(verify.General(p, of(p)), rules...)); err != nil {
		return err
	}
	for _, k := range kinds() {
		if k.Within == nil {
			continue
		}
		if within := k.Within(p); within != nil {
			return Verify(within)
		}
	}
	return nil
}

// rulesOf are those of all kinds. An error says that the plan cannot be followed at all.
func rulesOf(p *Plan) ([]kind.Rule, error) {
	var rules []kind.Rule
	for _, k := range kinds() {
		own, err := k.Rules(p)
		if err != nil {
			return nil, err
		}
		rules = append(rules, own...)
	}
	return rules, nil
}
