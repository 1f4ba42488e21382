// Package loss turns single probes into evidence: a Tracker makes the counts, gaps and round-trip
// quantiles of one path out of sends and answers, an Account adds up what reports made of those say of paths and
// nodes, for everything that shows or judges them, and Judge says whether an account holds what a gate demands.
// Nothing here sends, waits or looks at a clock; every time comes from the caller.
//
// A probe counts from when it was sent. It is answered when its answer is there within the timeout, and
// lost otherwise, where time in which the sender itself did not run does not count; probes are decided in the order in which they were sent, so a probe that is still open
// holds back those after it for the timeout at most, and a result never contradicts itself.
//
// A gap runs from the send time of the first wrong probe to that of the first right one after it. Wrong
// is lost, and on a path that must stay shut it is answered: a leak.
package loss
