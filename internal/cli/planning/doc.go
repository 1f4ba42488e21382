// Package planning makes plans, for the commands that do: plan, and flags rollout.
package planning
