// Package asking asks the process that runs a migration, or the controller in the cluster, to pause it, to continue it
// or to roll it back, and approves plans: what `theseus pause` and its siblings do, and the actions of the live page.
// It runs no part of a plan.
package asking
