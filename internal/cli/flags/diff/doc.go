// Package diff is the command `theseus flags diff`.
package diff
