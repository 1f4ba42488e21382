// Package pair connects to the two clusters and the zones of a plan with a mirror, as flags and the plan name them, and
// has the common form of commands about such a plan.
package pair
