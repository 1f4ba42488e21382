// Package status is the command `theseus mirror status`.
package status
