// Package journal keeps what the engine writes down: in the cluster, where everybody with the rights can
// take over, in a file beside it, and in memory for tests. It also keeps the lock that lets one operator at
// a time run a migration on a cluster, and carries what operators ask of it.
package journal
