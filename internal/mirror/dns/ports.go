// Package dns executes plans that move DNS names: it has the actor that changes zones and checks name servers and
// resolvers, and the gate that tests services by their names.
package dns

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// Provider reads and changes one zone at its provider.
type Provider interface {
	// Load reads the whole zone.
	Load(context.Context) (*zone.Zone, error)
	// Read returns the current record sets at places, from the authority itself.
	Read(context.Context, []zone.Place) (zone.Current, error)
	// Commit changes all units or none. If Provider has a method Piecemeal that returns true, Commit may stop in the
	// middle, and resumes there when it is called again. It fails with zone.ErrConflict if a unit is not as expected,
	// with zone.ErrRefused if the change is not allowed, and with engine.ErrUnavailable if it is unknown whether the
	// change was made.
	Commit(context.Context, zone.Transaction) error
}

// Zone is an open zone.
type Zone struct {
	Name string
	Provider
	// Authoritative are all authoritative servers of the zone, as host:port.
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
