// Package survey reads the input of commands, from the cluster or from files, and runs the checks on it.
package survey
