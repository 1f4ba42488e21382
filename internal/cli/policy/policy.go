package policy

import (
	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/policy/translate"
	"github.com/theseus-cni/theseus/internal/cli/usage"
)

// NewCommand makes the command theseus policy.
func NewCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Work with the policies of a network",
		Args:  usage.None,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(translate.NewCommand(a)) // its -o is a file
	return command
}
