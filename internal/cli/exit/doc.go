// Package exit says how a command ends: errors with a code and a hint, and the exit codes, which are the same in
// all commands. What an error is about does not belong here.
package exit
