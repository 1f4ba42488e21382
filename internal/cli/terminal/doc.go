// Package terminal is what commands know of a terminal: whether a stream leads to one, its size, and texts
// folded to its width. What is drawn on it is not here: the view of a run is in package view.
package terminal
