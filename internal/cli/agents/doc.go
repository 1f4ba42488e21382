// Package agents lets a command use Theseus' namespace while no migration is running: for its agents on the nodes, or
// for a benchmark.
package agents
