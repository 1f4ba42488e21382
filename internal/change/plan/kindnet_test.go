package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/kindnet"
	"github.com/theseus-cni/theseus/internal/step"
)

// fromKindnet is a change from the network of kind's clusters.
func fromKindnet(t testing.TB) *request {
	r := flannelToCalico(t)
	r.snapshot, r.drivers = cnitest.Shape(t, "kindnet-nodes"), append(r.drivers, kindnet.Driver{})
	return r
}

// TestFromKindnet: a source that masquerades whatever leaves a node is joined so that it leaves alone what pods of the
// target send each other, on every node; a plan that does not is refused, and so is one that does where no source asks
// for it. No pod is adopted, and the plan says why.
func TestFromKindnet(t *testing.T) {
	joined := func(p *plan.Plan, within bool) (count int) {
		for i := range p.Steps {
			for j := range p.Steps[i].Actions {
				a := &p.Steps[i].Actions[j]
				var args step.JoinArgs
				if a.Verb() != step.VerbJoin {
					continue
				}
				step.Edit(a, func(do *step.Node) {
					if err := json.Unmarshal(do.Args, &args); err != nil {
						t.Fatal(err)
					}
					if args.Within {
						count++
					}
					args.Within = within
					do.Args, _ = json.Marshal(args)
				})
			}
		}
		return count
	}
	p := mustMake(t, fromKindnet(t))
	if count := joined(p, false); p.Strategy != "recreate" || count != len(p.Cluster.Nodes) {
		t.Errorf("%s, and %d nodes are joined within the target's range", p.Strategy, count)
	}
	other := mustMake(t, flannelToCalico(t))
	if count := joined(other, true); count > 0 {
		t.Errorf("flannel masquerades its own pods alone, and %d nodes are joined within the target's range", count)
	}
	for says, p := range map[string]*plan.Plan{
		"the plan does not exempt traffic between the target's pods from the source's masquerading": p,
		"the plan exempts traffic between the target's pods, but the source does not masquerade it": other,
	} {
		if err := plan.Verify(p); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q, not %q", err, says)
		}
	}
	adopt := fromKindnet(t)
	adopt.change.Strategy, adopt.change.PodCIDR = "adopt", ""
	if _, err := adopt.make(); err == nil || !strings.Contains(err.Error(), "kindnetd deletes the route") {
		t.Errorf("an adoption: %v", err)
	}
}

// TestVerifyFromKindnetOrder: no step of such a plan may be left out or stand anywhere else.
func TestVerifyFromKindnetOrder(t *testing.T) { mustNeedOrder(t, mustMake(t, fromKindnet(t)), nil) }
