// Package execute runs the engine from a terminal: it shows the run, stops it on signals, and ends with a summary and
// an exit code.
package execute
