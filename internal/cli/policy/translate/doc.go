// Package translate has the command `theseus policy translate`.
package translate
