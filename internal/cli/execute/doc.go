// Package execute runs the engine from a terminal: with a view of it, signals that stop it, and a summary and an
// exit code at its end.
package execute
