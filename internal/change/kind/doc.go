// Package kind is the contract between the planner and the kinds of change: the plan as a document, the questions that
// the planner asks a kind, and the code that every kind needs to answer them. A kind is a value, as a check is. Each
// has a package of its own in the parent directory.
//
// Belongs here: the form of plans, Kind and Rule, and code that several kinds share when they read a cluster (refusals,
// waves, a plan's description of itself). Code for one kind or one network does not belong here.
package kind
