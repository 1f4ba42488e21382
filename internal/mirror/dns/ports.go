// Package dns carries plans of moves out: it is the engine's hands on zones, the eyes on every name server and
// resolver, and the gate on the services' names.
package dns

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// Provider changes one zone where it is kept.
type Provider interface {
	// Load reads the whole zone.
	Load(context.Context) (*zone.Zone, error)
	// Read says what is at places now, by the authority itself.
	Read(context.Context, []zone.Place) (zone.Current, error)
	// Commit changes all units or none; where Provider has a method Piecemeal that says true, it may end in the middle, and goes
	// on from there when it is called again. It fails with zone.ErrConflict when one is not as expected, with
	// zone.ErrRefused when it must not, with engine.ErrUnavailable when nobody can tell whether it did.
	Commit(context.Context, zone.Transaction) error
}

// Zone is a zone at hand.
type Zone struct {
	Name string
	Provider
	// Authoritative are all servers that answer for the zone, as host:port.
	Authoritative []string
}

// piecemeal says whether a transaction that ended early may have left a unit half changed.
func (z *Zone) piecemeal() bool {
	p, ok := z.Provider.(interface{ Piecemeal() bool })
	return ok && p.Piecemeal()
}

// Clock tells the time and waits.
type Clock interface {
	Now() time.Time
	Sleep(context.Context, time.Duration) error
}
