// Package report is the command `theseus report`.
package report
