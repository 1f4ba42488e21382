// Package view shows a run as it happens: live on a terminal, as lines in a pipe, as JSON for programs. It decides
// nothing: package run describes the records.
package view
