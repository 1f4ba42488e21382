// Package cli is the command line: the root command, and the list of the commands below it. Commands read
// flags, wire the stages of the pipeline together, and show what they say. They decide nothing about networks.
//
// The tree of packages is the tree of commands: theseus mirror certs is in mirror/certs. A package has one
// command, or a few that are one thing, such as control (status, pause, resume and rollback) and flags/database
// (put and history). What commands share is in packages that are named for what they provide:
//
//   - app: the streams, the cluster of the kubeconfig, and -o; every command is given it
//   - version: which build of Theseus this is
//   - exit: errors, hints and exit codes; usage: arguments, forms of output and help texts
//   - terminal: its size, and texts folded to it; view: a run as it happens; interrupt: signals
//   - survey: the cluster or files as commands read them, and the checks
//   - changeflags: the change that is wanted
//   - planning and planfile: plans are made, written, read, signed
//   - approval, migrations and statedir: which plan was approved here, which migration is meant, and what this
//     machine keeps
//   - execute: a run from a terminal; agents: agents that are asked outside of any run
//   - flags/flagsource and flags/origin: where flags come from, and what they say of every node
//   - mirror/clusters, mirror/zonefile and mirror/pair: how a mirror and DNS zones are reached
//
// The rules of this user interface:
//   - a command does one thing, and says beforehand what it will change;
//   - results go to standard output, everything else to standard error;
//   - an error is one line "error: ..." and, where something can be done, one line "hint: ...";
//   - exit codes mean the same in every command (see package exit);
//   - -o json gives the same facts to machines.
//
// Belongs here: commands, their flags, and what they print.
//
// Does not belong here: everything that a process without a terminal needs too.
//
// Door: cli, version.
// Hands: all.
package cli
