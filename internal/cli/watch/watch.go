package watch

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/follow"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// NewCommand makes the command theseus watch.
func NewCommand(a *app.App) *cobra.Command {
	return migrations.Command(a, "watch", "Watch a migration that another process runs, until it ends",
		"Shows a migration as `theseus apply` shows its own, whichever process runs it: the "+
			"controller in the cluster, or\n"+
			"theseus on another machine. It reads the journal and the probes' reports in the cluster, "+
			"and writes nothing there.\n"+
			"It ends when the migration ends or needs a person, with the exit code of `theseus "+
			"apply`. While the migration is\n"+
			"paused it waits. An interrupt ends the watching, not the migration.",
		func(ctx context.Context, client *kube.Client, name string) error {
			return follow.Run(ctx, a, client, name, 0)
		})
}
