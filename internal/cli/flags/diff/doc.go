// Package diff has the command `theseus flags diff`.
package diff
