// Package snapshot is the command `theseus snapshot`.
package snapshot
