// Package cli is the command line: it reads flags, wires the stages of the pipeline together, and shows
// what they say. It decides nothing about networks.
//
// The rules of this user interface:
//   - a command does one thing, and says beforehand what it will change;
//   - results go to standard output, everything else to standard error;
//   - an error is one line "error: ..." and, where something can be done, one line "hint: ...";
//   - exit codes mean the same in every command (see exit.go);
//   - -o json gives the same facts to machines.
//
// Belongs here: commands, their flags, and what they print.
//
// Does not belong here: everything that a process without a terminal needs too.
//
// Door: cli.
// Hands: cli.
package cli
