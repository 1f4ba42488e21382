package usage

import (
	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// Exactly demands n arguments; the error names them.
func Exactly(n int, names string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) != n {
			return exit.Fail(exit.Usage, command.CommandPath()+" --help", "%s takes %s", command.CommandPath(), names)
		}
		return nil
	}
}

// None demands no arguments. For a command with subcommands, an argument is taken for a misspelt one.
func None(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !command.HasAvailableSubCommands() {
		return exit.Fail(exit.Usage, command.CommandPath()+" --help", "%s takes no arguments, but got %q",
			command.CommandPath(), args[0])
	}
	hint := command.CommandPath() + " --help"
	command.SuggestionsMinimumDistance = 2
	if near := command.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean: " + command.CommandPath() + " " + near[0]
	}
	return exit.Fail(exit.Usage, hint, "%s has no command %q", command.CommandPath(), args[0])
}

// AtMostOne lets one argument be left out.
func AtMostOne(names string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) > 1 {
			return exit.Fail(exit.Usage, command.CommandPath()+" --help", "%s takes at most %s",
				command.CommandPath(), names)
		}
		return nil
	}
}
