// Package probe is the command `theseus probe`.
package probe
