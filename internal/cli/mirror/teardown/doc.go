// Package teardown has the command `theseus mirror teardown`.
package teardown
