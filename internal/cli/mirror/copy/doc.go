// Package copy has the commands `theseus mirror copy` and `theseus mirror diff`.
package copy
