// Package bench has the command `theseus bench network`.
package bench
