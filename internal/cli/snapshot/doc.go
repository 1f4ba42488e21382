// Package snapshot has the command `theseus snapshot`.
package snapshot
