// Package push is the command `theseus image push`.
package push
