package controller

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// TestTooLarge: a plan for which the controller has too little memory is refused with what to do, and not kept.
func TestTooLarge(t *testing.T) {
	c, _, m := entered(t)
	c.Memory = 100<<20 + 6000
	unfit, err := c.unfit(t.Context(), m)
	if err != nil || unfit == nil || unfit.Reason != v1alpha1.ReasonTooLarge ||
		!strings.Contains(unfit.Message, "resources.limits.memory") || c.plan != nil {
		t.Errorf("%+v, %v, kept: %t", unfit, err, c.plan != nil)
	}
	c.Memory, c.plans = 0, map[string]*loaded{}
	if unfit, err = c.unfit(t.Context(), m); err != nil || unfit != nil {
		t.Errorf("with the memory of the chart: %+v, %v", unfit, err)
	}
}

// TestOnePlan: of several Migrations, the plan of one is kept, and the one that runs gets its own.
func TestOnePlan(t *testing.T) {
	c, p, m := entered(t)
	other := *p
	other.Name = "n"
	other.Hash = plan.Hash(&other)
	if err := journal.CreateInCluster(t.Context(), c.Client.Dynamic, &other); err != nil {
		t.Fatal(err)
	}
	n, err := journal.Get(t.Context(), c.Client.Dynamic, "n")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []*v1alpha1.Migration{m, n} {
		if unfit, err := c.unfit(t.Context(), one); err != nil || unfit != nil {
			t.Fatalf("%+v, %v", unfit, err)
		}
		if c.next(one) != c.plans[one.Name].takes[0] {
			t.Errorf("the next step of %s takes %s", one.Name, c.next(one))
		}
	}
	if c.plan.Name != "n" {
		t.Errorf("the plan of %s is kept", c.plan.Name)
	}
	for _, one := range []*v1alpha1.Migration{m, n, n} {
		got, err := c.take(t.Context(), one)
		if err != nil || got.Name != one.Name || got.Hash != one.Spec.PlanHash || c.plan != nil {
			t.Errorf("%s: %v", one.Name, err)
		}
	}
}
