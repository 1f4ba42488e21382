// Package change is the room of plans: from a snapshot and a wish to steps that are proven before anything
// runs.
//
// Belongs here: kind (the contract: the form of plans, and what a kind of change answers), verify (takes rules over
// every prefix of a plan), compact (the steps of a plan with each thing said once, as its file has them), plan (makes,
// verifies, prints, writes and reads plans; names no kind but in its list) and one package for each kind of change:
// replace (by adopt, recreate or surge), mirror, upgrade, rollout, pool, encapsulation, reflectors, guard. A new kind
// of change is a new package here and one line in plan/kinds.go.
//
// Does not belong here: what a network needs (network), the words of a plan (step), and running it (run).
//
// Door: adopt, encapsulation, guard, kind, mirror, plan, pool, recreate, reflectors, rollout, surge, upgrade.
package change
