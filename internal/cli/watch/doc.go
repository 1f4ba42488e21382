// Package watch is the command `theseus watch`.
package watch
