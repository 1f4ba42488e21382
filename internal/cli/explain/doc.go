// Package explain has the command `theseus explain`.
package explain
