// Package change is the room of plans: from a snapshot and a wish to steps that are proven before anything
// runs.
//
// Belongs here: plan (makes, verifies, prints, writes and reads plans) and one package for each kind of
// change: adopt, recreate, surge, mirror, upgrade, rollout, pool, encapsulation, reflectors. A new kind of
// change is a new package here, and the places in plan that choose between kinds.
//
// Does not belong here: what a network needs (network), the words of a plan (step), and running it (run).
//
// Door: adopt, encapsulation, mirror, plan, pool, recreate, reflectors, rollout, surge, upgrade.
package change
