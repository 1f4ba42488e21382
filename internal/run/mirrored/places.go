package mirrored

import (
	"context"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// Whereabouts says where a name points, according to its zone: to the "original", the "mirror", "both" (weighted), or
// "elsewhere".
type Whereabouts struct {
	Name     string   `json:"name"`
	At       string   `json:"at"`
	Services []string `json:"services"`
	Records  []string `json:"records,omitempty"`
	// Changed is true if the records, TTLs aside, are not those of the plan.
	Changed bool `json:"changed,omitempty"`
	// TTL is the longest one of its address records now, in seconds.
	TTL uint32 `json:"ttl"`
}

// Places reads where the names of the plan point.
func (p *World) Places(ctx context.Context) ([]Whereabouts, error) {
	var all []Whereabouts
	for _, z := range p.Zones {
		var wanted []zone.Place
		for _, m := range p.Plan.Mirror.Names.Moves {
			if m.Zone == z.Name {
				wanted = append(wanted, m.Places()...)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		current, err := z.Read(ctx, wanted)
		if err != nil {
			return nil, err
		}
		for _, m := range p.Plan.Mirror.Names.Moves {
			if m.Zone == z.Name {
				all = append(all, placeOf(m, current))
			}
		}
	}
	return all, nil
}

func placeOf(m zone.Move, current zone.Current) Whereabouts {
	found := Whereabouts{Name: strings.TrimSuffix(m.Name, "."), Services: m.Services, At: "elsewhere"}
	var sets []zone.RRSet
	for _, at := range m.Places() {
		for _, set := range current[at] {
			sets = append(sets, set)
			if set.IsAddress() {
				found.Records = append(found.Records, set.String())
				found.TTL = max(found.TTL, set.TTL)
			}
		}
	}
	same := func(wanted []zone.RRSet) bool {
		return slices.EqualFunc(zone.Sorted(slices.Clone(wanted)), zone.Sorted(sets), zone.RRSet.Same)
	}
	switch {
	case same(m.Before):
		found.At = "original"
	case same(m.After):
		found.At = "mirror"
	case slices.ContainsFunc(sets,
		func(set zone.RRSet) bool { return set.Weight != nil && strings.HasPrefix(set.SetID, "theseus-") }):
		found.At = "both"
	default:
		found.Changed = true
	}
	return found
}
