// Package lint has the command `theseus flags lint`.
package lint
