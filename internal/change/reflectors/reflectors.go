// Package reflectors is the strategy that moves BGP's route reflectors to other nodes, brings some in the place of a
// full mesh, or goes back to it. Calico ends a session and makes it again when the role of a node changes, on both
// sides and all of a node's at once, and its routes go with it. So every node retains the routes that it has until
// BIRD has made them all again: nothing is lost then, whatever the order. The new sessions come before the old ones go
// all the same, and each part is gated by the sessions and routes that are really there.
//
// The package is pure: it turns what was seen and what is wanted into steps.
package reflectors

import (
	"time"

	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how plans name the strategy.
const Name = "reflectors"

// settles is how long the gate of a part watches at least: a session that is about to be ended by what was just changed
// looks like one that is there to stay, until confd has seen the change and BIRD its new configuration.
const settles = 10 * time.Second

// Part is what is changed at a time.
type Part struct {
	ID, Title, Why string
	// Proof is what the gate says once all sessions are up.
	Proof   string
	Actions []step.Action
}

// Steps makes the whole procedure. Within are the ranges whose routes BIRD carries.
func Steps(in joint.Input, within []string, parts []Part) []step.Step {
	b := joint.New(in)
	b.Prepare()
	b.Retain(within, "The next steps end BGP sessions and start others. If BIRD removes a route in the meantime, "+
		"packets take the retained one.")
	for _, part := range parts {
		gate := b.Gate(part.Proof, true)
		gate.Bake = max(gate.Bake, step.Duration(settles))
		b.Add(step.Step{
			Group: "bgp", Does: part.ID, Title: part.Title, Why: part.Why, Actions: part.Actions, Gate: gate,
		})
	}
	b.LetGo(within)
	last := len(b.Steps)
	b.End([]string{"old"}, []string{"old", "new"})
	b.Steps[last].NoReturn = true
	return b.Steps
}
