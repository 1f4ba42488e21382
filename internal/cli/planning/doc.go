// Package planning makes plans, for the commands plan and flags rollout.
package planning
