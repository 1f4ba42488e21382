// Package registry is the command `theseus mirror registry`.
package registry
