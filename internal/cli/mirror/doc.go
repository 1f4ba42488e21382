// Package mirror has the command `theseus mirror`; each command below it is a package below this one.
package mirror
