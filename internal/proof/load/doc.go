// Package load carries out the measurements of a benchmark (package bench) from one pod: Serve is the responder, Work
// puts load on a path when it is asked to, and Conduct asks for one measurement after another and sends probes during
// the load.
//
// The generators are open-loop: every operation has a time at which it is to be sent, which follows from the rate
// alone, and its latency is counted from that time. A generator that waits for an answer before it sends the next
// question would send none while the responder stalls, and one stall of a second would then count as one slow answer
// (coordinated omission).
//
// Conduct and Work run in two containers: processors that the load uses up must not delay the probes.
package load
