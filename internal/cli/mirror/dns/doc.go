// Package dns is the command `theseus mirror dns`.
package dns
