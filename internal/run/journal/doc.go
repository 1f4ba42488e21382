// Package journal stores the records of the engine: in the cluster, where every user with the permissions can take
// over, in a file as a local copy, and in memory for tests. It also has the lock that lets only one operator at a
// time run a migration on a cluster, and it stores the operators' requests to a migration.
package journal
