// Package kind is the contract between the planner and kinds of change: the plan as a document, what a kind is asked,
// and what every kind needs to answer. A kind is a value, as a check is; each has a package of its own beside this one.
//
// Belongs here: the form of plans, Kind and Rule, and what several kinds have in common when they look at a cluster
// (refusals, waves, what a plan says of itself). What one kind or one network needs does not.
package kind
