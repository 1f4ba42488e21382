package app

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/usage"
)

// KnownOutput refuses an output format that the command does not support.
func (a *App) KnownOutput(command *cobra.Command, _ []string) error {
	forms, limited := command.Annotations[usage.OutputForms]
	if !limited || a.Output == "" {
		return nil
	}
	all := strings.Fields(forms)
	if slices.Contains(all, a.Output) {
		return nil
	}
	return exit.Fail(exit.Usage, "-o "+usage.OrList(all), "%s cannot be written as %q", command.CommandPath(), a.Output)
}
