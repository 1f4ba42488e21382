// Package agents lets a command ask Theseus' agents outside of any migration.
package agents
