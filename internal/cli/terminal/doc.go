// Package terminal has what commands need to know of a terminal: whether a stream leads to one, its size, and texts
// folded to its width. The view of a run is in package view.
package terminal
