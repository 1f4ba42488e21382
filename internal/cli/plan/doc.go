// Package plan is the command `theseus plan`.
package plan
