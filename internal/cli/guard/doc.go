// Package guard is the command `theseus guard`.
package guard
