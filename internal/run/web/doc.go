// Package web is the live page of a run: what it shows (State), how viewers get it (Delta, by the one Feed of the
// process), and the HTTP handler that serves it: on loopback to everyone who has its address, or in the cluster to
// users who sign in (Cluster).
//
// Belongs here: what the page shows and in which words, its files, its handler, and reading the run from the cluster
// for it.
//
// Does not belong here: the requests of people to a run (cli/control), and what the finished run cost (report). The
// page takes its colours and the states of steps, nodes and gates from the report, and its words about records from
// run.Script.
package web
