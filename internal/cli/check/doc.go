// Package check has the command `theseus check`.
package check
