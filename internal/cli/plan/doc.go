// Package plan has the command `theseus plan`.
package plan
