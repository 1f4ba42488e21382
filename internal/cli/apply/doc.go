// Package apply is the command `theseus apply`.
package apply
