// Package report has the command `theseus report`.
package report
