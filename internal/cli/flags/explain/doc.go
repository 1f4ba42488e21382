// Package explain has the command `theseus flags explain`.
package explain
