// Package plan turns a snapshot and a requested change into a plan: complete, printable as a runbook, verified on
// every prefix, and only data. The package of each kind of change has what that kind needs; kinds.go lists the kinds.
// Package kind defines the form of plans.
package plan

import "github.com/theseus-cni/theseus/internal/change/kind"

// The form of plans is that of the contract with kinds of change.
type (
	// Plan is what `theseus apply` executes.
	Plan = kind.Plan
	// Cluster, Flags, Wave and Workload are parts of it.
	Cluster  = kind.Cluster
	Flags    = kind.Flags
	Wave     = kind.Wave
	Workload = kind.Workload
	// Leg is what is done in one window.
	Leg = kind.Leg
	// Options are what a plan depends on in addition to the snapshot and the change; Decided and Origin are a flag as
	// it was evaluated.
	Options = kind.Options
	Decided = kind.Decided
	Origin  = kind.Origin
	// Refusal says why Theseus makes no plan, and how the user can fix that.
	Refusal = kind.Refusal
	// Reach is what a plan does beyond objects that it applies.
	Reach = kind.Reach
)

// Kind is the kind of a serialised plan.
const Kind = kind.Document
