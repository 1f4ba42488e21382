// Package registry has the command `theseus mirror registry`.
package registry
