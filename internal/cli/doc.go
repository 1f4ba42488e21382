// Package cli is the command line: the root command, and the list of the commands below it. Commands read
// flags, connect the stages of the pipeline, and print their results. They decide nothing about networks.
//
// The tree of packages is the tree of commands: theseus mirror certs is in mirror/certs. A package has one
// command, or a few that belong together, such as control (status, pause, resume and rollback) and flags/database
// (put and history). Code that commands share is in packages that are named for what they provide:
//
//   - app: the streams, the cluster of the kubeconfig, and -o, for all commands
//   - version: which build of Theseus this is
//   - exit: errors, hints and exit codes; usage: arguments, forms of output and help texts
//   - terminal: its size, and texts folded to its width; view: the progress of a run; interrupt: signals
//   - survey: the cluster or files as commands read them, and the checks
//   - changeflags: the flags of the requested change; agentimage: the image of the agent
//   - planning and planfile: plans are made, written, read and signed
//   - approval, migrations and statedir: which plan was approved here, which migration is meant, and the folder of this
//     machine's state
//   - execute: a run from a terminal; follow: a run of another process; incluster: the controller in the cluster
//   - asking: sends requests to the process that runs a migration, and approves plans, also for the controller's page
//   - agents: agents outside of any migration
//   - flags/flagsource and flags/origin: where flags come from, and their values on every node
//   - mirror/clusters, mirror/zonefile and mirror/pair: connections to a mirror and to DNS zones
//
// The rules of this user interface:
//   - a command does one thing, and says what it will change before it does;
//   - results go to standard output, everything else to standard error;
//   - an error is one line "error: ..." and, if the user can do something, one line "hint: ...";
//   - exit codes are the same in every command (see package exit);
//   - -o json prints the same facts for programs.
//
// Belongs here: commands, their flags, and what they print.
//
// Does not belong here: anything that a process without a terminal needs too.
//
// Door: cli, version.
// Hands: all.
// Tests: clitest.
package cli
