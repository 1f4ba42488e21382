// Package exit says how a command ends: errors with a code and a hint, and the exit codes, which are the same in
// every command. It belongs here when it is about the end of the program; what the error is about does not.
package exit
