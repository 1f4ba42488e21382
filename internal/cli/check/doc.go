// Package check is the command `theseus check`.
package check
