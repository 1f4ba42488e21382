// Package lint is the command `theseus flags lint`.
package lint
