// Package copy is the commands `theseus mirror copy` and `theseus mirror diff`.
package copy
