// Package survey reads what commands decide on, from the cluster or from files, and runs the checks on it.
package survey
