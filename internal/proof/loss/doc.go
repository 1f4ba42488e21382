// Package loss turns single probes into evidence. A Tracker computes the counts, gaps and round-trip quantiles of one
// path from sends and answers. An Account adds up the results in reports, for everything that shows or judges them.
// Judge decides whether an account meets what a gate demands. The package sends nothing, waits for nothing and reads no
// clock; every time comes from the caller.
//
// A probe counts from when it was sent. It is answered if its answer arrives within the timeout, and lost otherwise;
// time in which the sender itself was stalled does not count towards the timeout. Probes are decided in the order in
// which they were sent, so an open probe delays the decision on later ones for the timeout at most, and a result never
// contradicts itself.
//
// A gap lasts from the send time of the first wrong probe to that of the first right one after it. Wrong means lost,
// or, on a path that policy must block, answered: a leak.
package loss
