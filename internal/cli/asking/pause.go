package asking

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Pause asks the process that runs a migration to pause, and says which one was asked.
func Pause(ctx context.Context, a *app.App, client *kube.Client, name string) error {
	return a.Patiently(ctx, app.Begin, func(ctx context.Context) error { return ask(ctx, a, client, name) })
}

func ask(ctx context.Context, a *app.App, client *kube.Client, name string) error {
	p, migration, err := journal.Load(ctx, client.Dynamic, name)
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
	holder, err := migrations.Holder(ctx, a, client, state.End())
	if err != nil {
		return err
	}
	if holder == nil && !migration.Spec.InCluster {
		if a.Output == "json" {
			return asked(a, name, "")
		}
		fmt.Fprintf(a.Out, "no process runs %s, so there is nothing to pause; %s\n",
			name, engine.Judge(p.Steps, state, false).Ways)
		return nil
	}
	if err := journal.SetDesire(ctx, client.Dynamic, name, v1alpha1.DesirePause); err != nil {
		return err
	}
	if holder == nil { // the controller waits, for an approval or a person
		holder = &journal.HeldError{Holder: "the controller in the cluster"}
	}
	if a.Output == "json" {
		return asked(a, name, holder.Holder)
	}
	fmt.Fprintf(a.Out, "asked %s, which runs %s, to pause; `theseus status` shows when it has paused\n",
		holder.Holder, name)
	return nil
}

// asked prints as JSON which process was asked; empty when no process runs the migration.
func asked(a *app.App, name, holder string) error {
	return json.NewEncoder(a.Out).Encode(map[string]string{"name": name, "asked": holder})
}
