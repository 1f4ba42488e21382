package control

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// NewPause makes the command theseus pause.
func NewPause(a *app.App) *cobra.Command {
	return migrations.Command(a, "pause", "Ask a running migration to stop after the action at hand",
		"Asks a running migration to stop between two actions, or in the middle of a measurement. Everything works\n"+
			"as it stands then.",
		func(ctx context.Context, client *kube.Client, name string) error {
			return pause(ctx, a, client, name)
		})
}

func pause(ctx context.Context, a *app.App, client *kube.Client, name string) error {
	return a.Patiently(ctx, app.Begin, func(ctx context.Context) error { return ask(ctx, a, client, name) })
}

func ask(ctx context.Context, a *app.App, client *kube.Client, name string) error {
	p, _, err := journal.Load(ctx, client.Dynamic, name)
	if err != nil {
		return err
	}
	_, state, err := migrations.Standing(ctx, client, name)
	if err != nil {
		return err
	}
	if state.Over() {
		return migrations.Over(name, state)
	}
	holder, err := journal.HeldBy(ctx, run.Leases(client))
	if err != nil {
		return err
	}
	if holder == nil {
		if a.Output == "json" {
			return asked(a, name, "")
		}
		fmt.Fprintf(a.Out, "nobody runs %s: it stands still as it is; %s\n", name, engine.Judge(p.Steps, state, false).Ways)
		return nil
	}
	if err := journal.SetDesire(ctx, client.Dynamic, name, v1alpha1.DesirePause); err != nil {
		return err
	}
	if a.Output == "json" {
		return asked(a, name, holder.Holder)
	}
	fmt.Fprintf(a.Out, "asked %s, who runs %s, to pause; `theseus status` shows when it has\n", holder.Holder, name)
	return nil
}

// asked says as JSON who was asked to do something with a migration; empty when nobody runs it.
func asked(a *app.App, name, holder string) error {
	return json.NewEncoder(a.Out).Encode(map[string]string{"name": name, "asked": holder})
}
