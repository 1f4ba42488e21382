package image

import (
	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/image/push"
	"github.com/theseus-cni/theseus/internal/cli/usage"
)

// NewCommand makes the command theseus image.
func NewCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "image",
		Short: "Bring the images of Theseus to a registry",
		Args:  usage.None,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(push.NewCommand(a))
	return command
}
