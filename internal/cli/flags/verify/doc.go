// Package verify has the command `theseus flags verify`.
package verify
