// Package metrics has the numbers of a run for Prometheus. The probes' results come from the account that gates and the
// report use (loss.Account); nothing is counted a second time. The labels of a series are a class of paths, a node, or
// a word of a fixed list, never a single path.
//
// Belongs here: the metrics, their handler and its listener. Does not belong here: what is counted (proof/loss,
// engine).
package metrics
