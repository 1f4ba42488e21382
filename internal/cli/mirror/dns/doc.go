// Package dns has the command `theseus mirror dns`.
package dns
