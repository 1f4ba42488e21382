// Package exit says how a command ends: errors with a code and a hint, and the exit codes, which are the same in
// all commands. The content of errors does not belong here.
package exit
