// Package admission decides whether a plan may begin in a cluster: the cluster is the one that the plan was made for,
// it has not changed since, no other migration is unfinished, and neither findings nor missing permissions block the
// change. The command line and the controller ask it before the first record of a journal.
package admission
