// Package pair reaches the two clusters and the zones of a plan with a mirror, as flags and the plan name them, and is the
// form of commands about such a plan.
package pair
