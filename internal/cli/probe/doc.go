// Package probe has the command `theseus probe`.
package probe
