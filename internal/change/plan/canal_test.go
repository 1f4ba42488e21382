package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/canal"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// fromCanal is a change from Canal.
func fromCanal(t testing.TB) *request {
	r := flannelToCalico(t)
	r.snapshot, r.drivers = cnitest.Shape(t, "canal"), append(r.drivers, canal.Driver{})
	return r
}

// TestFromCanal: two of Calico's agents never run on one node, and what both networks have is never removed.
func TestFromCanal(t *testing.T) {
	p := mustMake(t, fromCanal(t))
	place := func(id string) int {
		at := slices.IndexFunc(p.Steps, func(s step.Step) bool { return strings.HasPrefix(s.ID, id) })
		if at < 0 {
			t.Fatalf("no step %s", id)
		}
		return at
	}
	if cede, agents, pool := place("joint/cede"), place("joint/agents"), place("joint/pool"); cede > agents ||
		agents > pool {
		t.Errorf("the order is wrong: %d, %d, %d", cede, agents, pool)
	}
	for i := range p.Steps {
		for _, a := range slices.Concat(p.Steps[i].Actions, p.Steps[i].Undo) {
			if a.Verb() != step.VerbClean && a.Verb() != step.VerbInventory {
				if a.Op() == step.OpDelete && a.Ref().Kind == "CustomResourceDefinition" &&
					strings.Contains(a.Ref().Name, "calico") {
					t.Errorf("%s deletes %s", p.Steps[i].ID, a.Ref())
				}
				continue
			}
			if text := string(a.Do.(step.Node).Args); strings.Contains(text, `"cali`) ||
				strings.Contains(text, "/var/lib/calico") {
				t.Errorf("%s removes what both networks have: %s", p.Steps[i].ID, text)
			}
		}
	}

	isRight := func(a step.Action) bool { return a.Ref().Name == "canal-cni-token" }
	fit := func(change func(*plan.Plan)) error {
		p := mustMake(t, fromCanal(t))
		change(p)
		return plan.Verify(p)
	}
	drop := func(id string) func(*plan.Plan) {
		return func(p *plan.Plan) {
			p.Steps = slices.DeleteFunc(p.Steps, func(s step.Step) bool { return s.ID == id })
		}
	}
	for name, test := range map[string]struct {
		change func(*plan.Plan)
		says   string
	}{
		"nothing leaves": {drop("joint/cede"), "the agents of both networks would enforce policy"},
		"no pool":        {drop("joint/pool"), "IPPool/default-ipv4-ippool does not exist yet"},
		"no rights": {func(p *plan.Plan) {
			s := &p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "joint/target" })]
			s.Actions = slices.DeleteFunc(s.Actions, isRight)
		}, "agents of the source could not start"},
		"rights that stay": {func(p *plan.Plan) {
			s := &p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "remove/source" })]
			s.Actions = slices.DeleteFunc(s.Actions, isRight)
		}, "canal-cni-token is still there"},
		"no rest": {func(p *plan.Plan) {
			s := &p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "joint/cede" })]
			s.Actions = s.Actions[1:]
		}, "nothing does the rest of its work"},
	} {
		if err := fit(test.change); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, not %q", name, err, test.says)
		}
	}

	adopt := fromCanal(t)
	adopt.change.Strategy, adopt.change.PodCIDR = "adopt", ""
	if _, err := adopt.make(); err == nil || !strings.Contains(err.Error(), "not attached to a bridge") {
		t.Errorf("an adoption: %v", err)
	}
	other := fromCanal(t)
	other.change.To, other.change.Manifest, other.change.PodCIDR = "flannel", "flannel.yaml", "10.244.0.0/16"
	other.options.Manifest = cnitest.Fixture(t, "flannel-manifest.yaml")
	if _, err := other.make(); err == nil || !strings.Contains(err.Error(), "only the agent of calico") {
		t.Errorf("another network: %v", err)
	}
	old := fromCanal(t)
	old.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "quay.io/calico/node:v3.99.0"
	if _, err := old.make(); err == nil || !strings.Contains(err.Error(), "v3.99.0 already") {
		t.Errorf("an older Calico: %v", err)
	}
}

// TestVerifyFromCanalOrder: no step of such a plan may be left out or stand anywhere else.
func TestVerifyFromCanalOrder(t *testing.T) { mustNeedOrder(t, mustMake(t, fromCanal(t)), nil) }
