// Package run is the room of what happens after a person has said yes: a plan is carried out, written down,
// taken over, and reported.
//
// Belongs here: engine (the deterministic machine and the interfaces it needs), journal (the record and the
// lock, in the cluster and on disk), nodepool (nodes that are added and removed by commands), report (what
// a change cost).
//
// Does not belong here: work on a node (node), calls to the API server (cluster/kube), and judging a path's
// probes (proof/loss).
//
// Door: engine, journal, nodepool, report.
// Hands: journal, nodepool.
package run
