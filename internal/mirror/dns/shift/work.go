// Package shift plans how names move from one cluster to another and back: TTLs are lowered in time, names go in
// waves, each proven first and watched after, TTLs are restored at the end. Nothing here acts.
package shift

import (
	"encoding/json"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/step"
)

// The verbs of the operation step.DNS, and what their Args are.
const (
	// Swap takes a SwapArgs: one transaction, by compare-and-swap.
	Swap = "swap"
	// See takes a SeeArgs: waits until every server and resolver answers so.
	See = "see"
	// Prove takes a ProveArgs: asks the addresses that names are about to get.
	Prove = "prove"
	// Rest takes a RestArgs: waits until caches have forgotten.
	Rest = "rest"
)

// SwapArgs are those of Swap.
type SwapArgs struct {
	zone.Transaction
	// Yield skips names that another client has changed meanwhile, and lists them, instead of failing: set in a
	// rollback.
	Yield bool `json:"yield,omitempty"`
}

// SeeArgs are those of See.
type SeeArgs struct {
	Zone string `json:"zone"`
	// Sets must be what every authoritative server and every chosen resolver answers. At a resolver the TTL may be
	// less. Of weighted sets any one is right, and an alias has only to be answered.
	Sets []zone.RRSet `json:"sets"`
	// No server may answer Gone any more.
	Gone []zone.Place `json:"gone,omitempty"`
	// Yield leaves out names that the authority itself does not have so: set on the way back.
	Yield bool `json:"yield,omitempty"`
}

// ProveArgs are those of Prove.
type ProveArgs struct {
	Probes []zone.Probe `json:"probes"`
	// Back are the records that every server must show after the undo of the step.
	Back []SeeArgs `json:"back,omitempty"`
}

// RestArgs are those of Rest.
type RestArgs struct {
	Seconds uint32 `json:"seconds"`
}

// GateArgs are the Args of a step.Gate over names.
type GateArgs struct {
	// Probes are asked over and over, by name, through the chosen resolvers, for as long as the gate bakes.
	Probes []zone.Probe `json:"probes"`
	// Direct also asks the addresses to which a share of the requests goes: by name, hardly one would come there.
	Direct bool `json:"direct,omitempty"`
}

func action(id, verb, title string, args any, timeout step.Duration) step.Action {
	data, err := json.Marshal(args)
	if err != nil {
		panic(err) // plain data
	}
	return step.Action{ID: id, Do: step.DNS{Verb: verb, Args: data}, Title: title, Timeout: timeout}
}
