package migrations

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Command is a command about one migration: the named one, or the latest.
func Command(a *app.App, use, short, long string, do func(context.Context, *kube.Client, string) error) *cobra.Command {
	command := &cobra.Command{
		Use: use + " [MIGRATION]", Short: short, Long: long,
		Args: usage.AtMostOne("one migration's name"),
		RunE: func(command *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			name, limits := "", app.Glance
			if slices.Contains([]string{"resume", "rollback", "watch", "web", "approve"}, use) {
				limits = app.Begin
			}
			if len(args) == 1 {
				name = args[0]
			} else if err = a.Patiently(command.Context(), limits, func(ctx context.Context) (err error) {
				name, err = latest(ctx, client)
				return err
			}); err != nil {
				return err
			}
			return do(command.Context(), client, name)
		},
	}
	if use == "report" {
		return command // it writes files, too
	}
	return usage.Takes(command, "json")
}

// latest is the migration that was created last.
func latest(ctx context.Context, client *kube.Client) (string, error) {
	all, err := journal.List(ctx, client.Dynamic)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", exit.Fail(exit.Failed, "make a plan and apply it (theseus plan --help), or check the kubeconfig's "+
			"context", "this cluster has no migration")
	}
	newest := slices.MaxFunc(all, func(x, y v1alpha1.Migration) int {
		return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
	})
	return newest.Name, nil
}

// Standing is the journal of a migration in the cluster, and its state.
func Standing(ctx context.Context, client *kube.Client, name string) ([]engine.Record, engine.State, error) {
	cluster := journal.NewCluster(client.Dynamic, name)
	records, err := cluster.Records(ctx)
	if err != nil {
		return nil, engine.State{}, err
	}
	if state, known := cluster.State(); known {
		return records, state, nil
	}
	state, err := engine.Replay(records)
	return records, state, err
}

// Holder is the process that runs a migration; nil if none does. end is when the migration ended, zero if it has not.
// While Holder has to watch the lock for that, it says so on standard error.
func Holder(ctx context.Context, a *app.App, client *kube.Client, end time.Time) (*journal.HeldError, error) {
	return journal.Holding(ctx, run.Leases(client), end, a.Tell)
}

// Over is the error of commands for which the migration must not have ended.
func Over(name string, state engine.State) error {
	return exit.Fail(exit.Failed, "`theseus report` shows what happened",
		"migration %s has ended: %s", name, state.Phase)
}
