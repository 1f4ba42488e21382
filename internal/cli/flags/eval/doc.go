// Package eval is the command `theseus flags eval`.
package eval
