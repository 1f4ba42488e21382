package dns

import (
	"context"
	"encoding/json"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Plan is what the engine carries out for a plan of moves.
func Plan(p *shift.Plan) *plan.Plan {
	return &plan.Plan{APIVersion: v1alpha1.APIVersion, Kind: plan.Kind, Name: p.Name, Theseus: p.Theseus,
		MadeAt: p.MadeAt, Change: v1alpha1.ChangeSpec{SLO: p.Options.SLO}, Strategy: "mirror",
		Steps: p.Steps(), Hash: p.Hash}
}

// Wish is an engine.Control of a run that no other process can reach: it always requests the same.
type Wish v1alpha1.Desire

// Desire implements engine.Control.
func (w Wish) Desire(context.Context) (v1alpha1.Desire, error) { return v1alpha1.Desire(w), nil }

// LeftAlone lists the names, with their state, that a rollback did not touch because another client had changed them.
func LeftAlone(records []engine.Record) []string {
	var all []string
	for _, r := range records {
		var left Left
		if r.Undo && r.Event == engine.Acted && len(r.Data) > 0 && json.Unmarshal(r.Data, &left) == nil {
			all = append(all, left.Left...)
		}
	}
	return all
}
