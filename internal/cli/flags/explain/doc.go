// Package explain is the command `theseus flags explain`.
package explain
