package control

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// NewPause makes the command theseus pause.
func NewPause(a *app.App) *cobra.Command {
	return migrations.Command(a, "pause", "Ask a running migration to stop after the current action",
		"Asks a running migration to stop between two actions, or during a measurement. All pods stay connected\n"+
			"while the migration is paused.",
		func(ctx context.Context, client *kube.Client, name string) error {
			return asking.Pause(ctx, a, client, name)
		})
}
