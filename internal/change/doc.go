// Package change is the room of plans: it turns a snapshot and a requested change into steps, and proves them before
// anything runs.
//
// Belongs here: kind (the contract: the form of plans, and the answers of a kind of change), verify (applies rules to
// every prefix of a plan), compact (the steps of a plan without repetition, as in its file), plan (makes, verifies,
// prints, writes and reads plans; names kinds only in its list) and one package for each kind of change, such as pool.
// The kind replace has its strategies in adopt, recreate and surge. A new kind is a new package here, its section of
// plans in kind, and one line in plan/kinds.go; CONTRIBUTING.md says what it needs besides.
//
// Does not belong here: knowledge about a network (network), the vocabulary of plans (step), and running them (run).
//
// Door: adopt, encapsulation, guard, kind, mirror, plan, pool, recreate, reflectors, rollout, surge, upgrade.
package change
