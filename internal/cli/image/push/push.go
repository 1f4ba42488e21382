package push

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/mirror/registry"
)

// NewCommand makes the command theseus image push.
func NewCommand(a *app.App) *cobra.Command {
	var from string
	command := &cobra.Command{
		Use:   "push REGISTRY --from LAYOUT",
		Short: "Push the images of an OCI layout to a registry",
		Long: `Pushes all images of a layout, for every architecture, to REGISTRY, and prints each with its digest. REGISTRY may have
a folder, as in registry.example.com/infra. Images keep their digests.
The layout is the folder that make images writes, or that a release has as an archive.

The login is that of this machine, as docker login, podman login or crane auth login keep it.`,
		Example: "  theseus image push registry.example.com/infra --from bin/images",
		Args:    oneRegistry,
		RunE: func(command *cobra.Command, args []string) error {
			if from == "" {
				return exit.Fail(exit.Usage, "theseus image push "+args[0]+" --from bin/images",
					"no layout is named (--from)")
			}
			pushed, err := registry.Push(command.Context(), from, args[0])
			if a.Output == "json" {
				terminal.Encode(a.Out, append([]registry.Pushed{}, pushed...))
				return err
			}
			for _, image := range pushed {
				fmt.Fprintln(a.Out, image.Reference())
			}
			return err
		},
	}
	command.Flags().StringVar(&from, "from", "", "the OCI layout, a folder")
	return command
}

func oneRegistry(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return exit.Fail(exit.Usage, "theseus image push registry.example.com/infra --from bin/images",
			"one registry is needed, not %d", len(args))
	}
	return nil
}
