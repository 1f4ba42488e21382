// Package view shows a run as it happens: live on a terminal, as lines in a pipe, as JSON for programs. It
// decides nothing: what is said of a record is in internal/run.
package view
