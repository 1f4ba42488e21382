package show

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// NewCommand makes the command theseus plan show.
func NewCommand(a *app.App) *cobra.Command {
	var migration string
	command := &cobra.Command{
		Use:   "show [PLAN]",
		Short: "Print the plan in a file, or the plan of a migration in the cluster",
		Long: "Prints a plan as a runbook: the plan in the file PLAN, or with --migration the plan of a " +
			"migration in the cluster,\n" +
			"such as one that the controller has made for a Change. With -o FILE it also writes the " +
			"complete plan there, for\n" +
			"`theseus approve --plan` and `theseus rights operate --plan`.",
		Example: "  theseus plan show plan.yaml\n" +
			"  theseus plan show --migration flannel-to-calico-3f9c2a -o plan.yaml",
		Args: usage.AtMostOne("one plan file"),
		RunE: func(command *cobra.Command, args []string) error {
			if (len(args) == 1) == (migration != "") {
				return exit.Fail(exit.Usage, command.CommandPath()+
					" plan.yaml, or --migration NAME; `theseus status` prints names", "name a file, or a migration")
			}
			if migration == "" {
				p, err := planfile.Read(args[0])
				if err != nil {
					return err
				}
				return planfile.Write(a, p, "")
			}
			p, err := load(command.Context(), a, migration)
			if err != nil {
				return err
			}
			return planfile.Show(a, p)
		},
	}
	command.Flags().StringVar(&migration, "migration", "", "name of a migration in the cluster")
	return command
}

// load reads the plan of a migration from the cluster.
func load(ctx context.Context, a *app.App, name string) (p *plan.Plan, err error) {
	client, err := a.Client()
	if err != nil {
		return nil, err
	}
	err = a.Patiently(ctx, app.Glance, func(ctx context.Context) (err error) {
		p, _, err = journal.Load(ctx, client.Dynamic, name)
		return err
	})
	return p, err
}
