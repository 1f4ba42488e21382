package rehearse

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/network/drivers"
)

// newNeeds makes the command theseus rehearse needs.
func newNeeds(a *app.App) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "needs --from SNAPSHOT",
		Short: "Say which network and how many nodes a scratch cluster needs",
		Long: "Reads the snapshot, and prints the network that the scratch cluster must have, and how many nodes at " +
			"least: one for each\nclass of nodes of the original. No cluster is contacted.",
		Example: "  theseus rehearse needs --from snapshot.json",
		Args:    usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			if len(o.from) == 0 {
				return exit.Fail(exit.Usage, fromHint, fromMissing)
			}
			return o.needs(command.Context(), a)
		},
	}
	o.registerFrom(command.Flags())
	return usage.Takes(command, "json")
}

// needs prints what the scratch cluster needs.
func (o *options) needs(ctx context.Context, a *app.App) error {
	original, err := survey.See(ctx, a, o.from)
	if err != nil {
		return err
	}
	if err := rehearsal.Usable(original); err != nil {
		return err
	}
	needs, err := rehearsal.NeedsOf(original, drivers.All().Detect(original), rehearsal.Options{Ignore: o.ignore})
	if err != nil {
		return err
	}
	if a.Output == "json" {
		return terminal.WriteJSON(a.Out, needs)
	}
	return a.Printed(needs.Text)
}
