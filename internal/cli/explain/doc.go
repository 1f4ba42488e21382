// Package explain is the command `theseus explain`.
package explain
