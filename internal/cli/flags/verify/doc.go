// Package verify is the command `theseus flags verify`.
package verify
