// Package status has the command `theseus mirror status`.
package status
