// Package eval has the command `theseus flags eval`.
package eval
