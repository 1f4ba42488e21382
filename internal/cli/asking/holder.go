package asking

import (
	"context"
	"fmt"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// AskHolder asks the process that runs a migration to roll it back.
func AskHolder(ctx context.Context, a *app.App, client *kube.Client, name string, held *journal.HeldError) error {
	if err := a.Patiently(ctx, app.Begin, func(ctx context.Context) error {
		return journal.SetDesire(ctx, client.Dynamic, name, v1alpha1.DesireRollback)
	}); err != nil {
		return err
	}
	if a.Output == "json" {
		return asked(a, name, held.Holder)
	}
	fmt.Fprintf(a.Out, "asked %s, which runs %s, to roll back; `theseus status` shows how far it is\n",
		held.Holder, name)
	return nil
}

// Load reads a migration, its plan and its journal.
func Load(ctx context.Context, a *app.App, client *kube.Client, name string) (p *plan.Plan,
	migration *v1alpha1.Migration, records []engine.Record, err error) {
	err = a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		if p, migration, err = journal.Load(ctx, client.Dynamic, name); err != nil {
			return err
		}
		records, err = journal.NewCluster(client.Dynamic, name).Records(ctx)
		return err
	})
	return p, migration, records, err
}

// MayTakeOver refuses to take over a migration that has ended, or to roll back past the point of no return.
func MayTakeOver(p *plan.Plan, records []engine.Record, desire v1alpha1.Desire) error {
	state, err := engine.Replay(records)
	if err == nil && state.Over() {
		return migrations.Over(p.Name, state)
	}
	if state, err = engine.Admit(p, records); err != nil {
		return err
	}
	if desire == v1alpha1.DesireRollback && state.PastReturn(p.Steps) {
		return exit.Fail(exit.NeedsPerson,
			"`theseus resume` finishes it; to go back, plan the change in the other direction",
			"%s is past its point of no return", p.Name)
	}
	return nil
}
