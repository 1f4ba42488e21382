// Package agents lets a command run Theseus' agents on the nodes while no migration is running.
package agents
