// Package compare sums up benchmarks of several networks (theseus bench network -o json) that were made in turn on one
// machine: the order of the rounds, the medians, and the table, the JSON and the page of the results. It starts nothing
// and measures nothing: package scenario does.
package compare
