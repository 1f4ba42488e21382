// Package run is the room of what happens after a person has said yes: a plan is carried out, written
// down, taken over, and reported. The package itself puts a run together from its parts, for a command line and
// for a process in a cluster alike: the lock, the journal, the actor, the gate, the evidence.
//
// Belongs here: Run (the assembly), Prepare (makes the place of its journal), ReportInput (what a report is made of),
// View and Script (what is said of a run, and its words), engine (the deterministic machine and the interfaces it
// needs), journal (the record and the lock, in the cluster and on disk), nodepool (nodes that are added and
// removed by commands), mirrored (what plans with a mirror do), report (what a change cost).
//
// Does not belong here: work on a node (node), calls to the API server (cluster/kube), and judging a path's
// probes (proof/loss).
//
// Door: run, engine, journal, mirrored, report.
// Hands: run, journal, mirrored, nodepool.
package run
