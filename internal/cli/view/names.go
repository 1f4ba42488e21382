package view

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// NameBoard tracks, from the journal's records, where the names of a plan of the strategy mirror point, and the
// requests of its gates.
type NameBoard struct {
	order       []string
	there       map[string][]zone.RRSet // by name, its address sets at the mirror
	away        map[string]bool
	gates       map[string]bool // steps whose gates are about names
	Asked, Lost int64
}

// NewNameBoard makes the board of a plan; nil for other strategies.
func NewNameBoard(p *plan.Plan) *NameBoard {
	if p.Mirror == nil {
		return nil
	}
	b := &NameBoard{there: map[string][]zone.RRSet{}, away: map[string]bool{}, gates: map[string]bool{}}
	for i := range p.Steps {
		b.gates[p.Steps[i].ID] = p.Steps[i].Gate != nil && p.Steps[i].Gate.Args != nil
	}
	for _, m := range p.Mirror.Names.Moves {
		b.order = append(b.order, m.Name)
		b.there[m.Name] = m.After
	}
	return b
}

// Take applies a record; the action is the one that the record is about.
func (b *NameBoard) Take(r engine.Record, action *step.Action) {
	switch {
	case b == nil:
	case r.Event == engine.GateAnswer && r.Verdict != nil && b.gates[r.Step]:
		b.Asked, b.Lost = b.Asked+r.Verdict.Sent, b.Lost+r.Verdict.Lost
	case r.Event == engine.Acted && r.Result != engine.ResultFailed && action != nil && action.Op() == step.OpDNS &&
		action.Verb() == shift.Swap:
		var args shift.SwapArgs
		if json.Unmarshal(action.Args(), &args) != nil {
			return
		}
		for _, u := range args.Units {
			at := Addresses(u.After)
			b.away[u.Name] = at == Addresses(b.there[u.Name])
		}
	}
}

// lines are a mark for every name, or counts if that is too long, and the gates' requests.
func (b *NameBoard) lines(width int) []string {
	var original, moved []string
	for _, name := range b.order {
		short, _, _ := strings.Cut(name, ".")
		if b.away[name] {
			moved = append(moved, short)
		} else {
			original = append(original, short)
		}
	}
	show := func(title string, names []string) string {
		line := fmt.Sprintf("%-8s %3d  %s", title, len(names), strings.Join(names, " "))
		return cut(line, width)
	}
	return []string{show("original", original), show("mirror", moved)}
}

// String sums up the gates' requests.
func (b *NameBoard) String() string {
	return fmt.Sprintf("%s requests, %d failed", cluster.Thousands(b.Asked), b.Lost)
}

// Addresses are those of sets.
func Addresses(sets []zone.RRSet) string {
	var all []string
	for _, set := range sets {
		switch {
		case !set.IsAddress():
		case set.Alias != nil:
			all = append(all, "alias "+set.Alias.Name)
		default:
			all = append(all, set.Values...)
		}
	}
	return strings.Join(all, ", ")
}
