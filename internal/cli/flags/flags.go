package flags

import (
	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/flags/database"
	"github.com/theseus-cni/theseus/internal/cli/flags/diff"
	"github.com/theseus-cni/theseus/internal/cli/flags/eval"
	"github.com/theseus-cni/theseus/internal/cli/flags/explain"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/flags/lint"
	"github.com/theseus-cni/theseus/internal/cli/flags/rollout"
	"github.com/theseus-cni/theseus/internal/cli/flags/serve"
	"github.com/theseus-cni/theseus/internal/cli/flags/verify"
	"github.com/theseus-cni/theseus/internal/cli/usage"
)

// NewCommand makes the command theseus flags.
func NewCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "flags",
		Short: "Work with feature flags, and the settings of networks that they control",
		Long: "Works on flag sets in flagd's format, with the additional operators cidr and node_selector.\n" +
			"\n" + flagsource.Help,
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	for _, one := range []*cobra.Command{lint.NewCommand(a), eval.NewCommand(a),
		diff.NewCommand(a), explain.NewCommand(a),
		serve.NewCommand(a), database.NewPut(a), database.NewHistory(a), verify.NewCommand(a)} {
		command.AddCommand(usage.Takes(one, "json"))
	}
	command.AddCommand(rollout.NewCommand(a)) // its -o is a file
	return command
}
