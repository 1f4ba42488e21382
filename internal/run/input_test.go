package run

import (
	"encoding/json"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestInventories: a node that came in the course of the change is known by its own name, which its agent tells.
func TestInventories(t *testing.T) {
	p := &plan.Plan{Steps: []step.Step{{ID: "remove/source"}, {ID: "finish/tidy"}}}
	var records []engine.Record
	for i, found := range []step.Residue{{Links: []string{"flannel.1"}}, {}} {
		action := step.Action{ID: p.Steps[i].ID + "/1", Do: step.Node{Verb: step.VerbInventory, NodeName: "new-1"}}
		p.Steps[i].Actions = []step.Action{action}
		data, err := json.Marshal(step.Inventory{Node: "blue-node-2", Found: found})
		if err != nil {
			t.Fatal(err)
		}
		records = append(records,
			engine.Record{Event: engine.Acted, Step: p.Steps[i].ID, Action: action.ID, Data: data})
	}
	before, after := inventories(p, records)
	if len(before) != 1 || len(after) != 1 || before["blue-node-2"].Found.Count() != 1 ||
		after["blue-node-2"].Found.Count() != 0 {
		t.Errorf("before %v, after %v", before, after)
	}
}

// TestPerWorkload: a workload of which some pods are adopted and others made again has two lines in a plan, and counts
// once.
func TestPerWorkload(t *testing.T) {
	web := plan.Workload{Kind: "Deployment", Namespace: "shop", Name: "web", Treatment: "adopt"}
	apart := web
	apart.Treatment = "move"
	db := plan.Workload{Kind: "StatefulSet", Namespace: "shop", Name: "db", Treatment: "adopt"}
	got := perWorkload([]plan.Workload{web, apart, db},
		map[string]int{"Deployment/shop/web": 3, "StatefulSet/shop/db": 2}, nil,
		map[string]int{"Deployment/shop/web": 1}, nil)
	if len(got) != 2 || got[0].Pods != 3 || got[0].Evicted != 1 || got[1].Pods != 2 {
		t.Errorf("%+v", got)
	}
}
