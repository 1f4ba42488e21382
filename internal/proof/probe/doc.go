// Package probe sends probes along paths and answers them. Serve answers; a Runner sends on a set of
// paths that may change while it runs, and accumulates each path's result with a loss.Tracker; the
// exchange files carry paths and results between the agent of a node and the probe pods on it; RunLocal
// measures given targets from this machine, without a cluster.
//
// A probe is due at absolute times, an interval apart, and counts from when it was really sent. A sender
// that is late sends at once; when it is more than two intervals late, the sends it missed are recorded
// as a stall and the schedule goes on from there, so nothing is left out silently and nothing bursts.
//
// One goroutine sends on all paths of a Runner, which wakes the processor once per interval instead of
// once per path and interval; each kept socket has a receiver. UDP paths keep one connected socket, so
// that their conntrack entries live as long as the path; kept TCP paths connect again when their
// connection breaks, and lose at least one probe whenever it does; new TCP connections and DNS lookups
// use a socket per probe, as clients do.
package probe
