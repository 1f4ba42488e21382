// Package metrics has the numbers of a run for Prometheus. The probes' results come from the account that gates and the
// report use (loss.Account); nothing is counted a second time. Every series is one of a class of paths, a node, or a
// fixed list of words: never one of a path.
//
// Belongs here: the metrics, their handler and its listener. Does not belong here: what is counted (proof/loss,
// engine).
package metrics
