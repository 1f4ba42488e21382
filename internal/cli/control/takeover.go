package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// NewResume makes the command theseus resume.
func NewResume(a *app.App) *cobra.Command {
	approvals, access := &approval.Flags{}, &mirror.Access{}
	command := migrations.Command(a, "resume", "Go on with a migration, from any machine",
		"Goes on where the journal in the cluster ends, with the plan that the cluster holds."+takeOverHelp,
		func(ctx context.Context, client *kube.Client, name string) error {
			return takeOver(ctx, a, client, name, v1alpha1.DesireRun, *access, approvals)
		})
	approvals.Register(command)
	pair.RegisterAccess(command, access)
	return command
}

// takeOverHelp says how a machine learns which plan was approved.
const takeOverHelp = "\nA machine that did not begin the migration must know which plan was approved: --plan FILE, or --expect HASH.\n" +
	"Without them it shows what the plan would run and delete, and asks; without a terminal it refuses."

// NewRollback makes the command theseus rollback.
func NewRollback(a *app.App) *cobra.Command {
	approvals, access := &approval.Flags{}, &mirror.Access{}
	command := migrations.Command(a, "rollback", "Take a migration back, before its point of no return",
		"Walks the undo of every step that was done, newest first. When another operator runs the migration,\n"+
			"it is asked to roll back; when nobody does, this command does it."+takeOverHelp,
		func(ctx context.Context, client *kube.Client, name string) error {
			return takeOver(ctx, a, client, name, v1alpha1.DesireRollback, *access, approvals)
		})
	approvals.Register(command)
	pair.RegisterAccess(command, access)
	return command
}

// takeOver runs the engine here with the plan of the cluster. A rollback of a migration that somebody
// else is running is only asked for.
func takeOver(ctx context.Context, a *app.App, client *kube.Client, name string, desire v1alpha1.Desire, access mirror.Access, f *approval.Flags) error {
	if err := f.Signers.Validate(); err != nil {
		return err
	}
	if f.Signers.List != "" && f.File == "" {
		return exit.Fail(exit.Usage, "say --plan FILE, beside which the signatures are", "--signed-by checks the signatures of a plan's file, and none is named")
	}
	var p *plan.Plan
	var records []engine.Record
	err := a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		if p, _, err = journal.Load(ctx, client.Dynamic, name); err != nil {
			return err
		}
		records, err = journal.NewCluster(client.Dynamic, name).Records(ctx)
		return err
	})
	if err == nil {
		err = mayTakeOver(p, records, desire)
	}
	if err != nil {
		return err
	}
	next := execute.New(a, client, access, p, false)
	next.Desire, next.Fresh = desire, failedBefore(records)
	if next.Head, err = approval.Approve(ctx, a, client, p, records, f); err == nil {
		err = execute.Run(ctx, a, next)
	}
	var held *journal.HeldError
	if desire != v1alpha1.DesireRollback || !errors.As(err, &held) {
		return err
	}
	if err := a.Patiently(ctx, app.Begin, func(ctx context.Context) error {
		return journal.SetDesire(ctx, client.Dynamic, name, desire)
	}); err != nil {
		return err
	}
	if a.Output == "json" {
		return asked(a, name, held.Holder)
	}
	fmt.Fprintf(a.Out, "asked %s, who runs %s, to roll back; `theseus status` shows how far it is\n", held.Holder, name)
	return nil
}

// mayTakeOver refuses what cannot be.
func mayTakeOver(p *plan.Plan, records []engine.Record, desire v1alpha1.Desire) error {
	state, err := engine.Replay(records)
	if err == nil && state.Over() {
		return migrations.Over(p.Name, state)
	}
	if state, err = engine.Admit(p, records); err != nil {
		return err
	}
	if desire == v1alpha1.DesireRollback && state.PastReturn(p.Steps) {
		return exit.Fail(exit.NeedsPerson, "`theseus resume` finishes it; to go back, plan the change the other way",
			"the point of no return of %s is behind", p.Name)
	}
	return nil
}

// failedBefore says whether a person has seen a failure of a run.
func failedBefore(records []engine.Record) bool {
	return slices.ContainsFunc(records, func(r engine.Record) bool {
		return r.Event == engine.Finished && r.Result == engine.ResultNeedsPerson
	})
}
