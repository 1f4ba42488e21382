// Package teardown is the command `theseus mirror teardown`.
package teardown
