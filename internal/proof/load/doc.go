// Package load carries out the measurements of a benchmark (package bench) from one pod: Serve is the responder, Work
// puts load on a path when it is asked to, and Conduct asks for one measurement after another and sends probes during
// the load.
//
// The generators are open-loop: every operation has a scheduled time, which follows from the rate alone, and its
// latency starts at that time. A generator that waits for an answer before it sends the next
// question would send none while the responder stalls, and one stall of a second would then count as one slow answer
// (coordinated omission).
//
// Conduct and Work run in two containers, so that the load does not take CPU time from the probes.
package load
