package control

import (
	"context"
	"errors"
	"fmt"

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
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// NewResume makes the command theseus resume.
func NewResume(a *app.App) *cobra.Command {
	approvals, access := &approval.Flags{}, &mirror.Access{}
	command := migrations.Command(a, "resume", "Continue a migration, from any machine",
		"Continues where the journal in the cluster ends, with the plan in the cluster."+takeOverHelp,
		func(ctx context.Context, client *kube.Client, name string) error {
			return takeOver(ctx, a, client, name, v1alpha1.DesireRun, *access, approvals)
		})
	approvals.Register(command)
	pair.RegisterAccess(command, access)
	return command
}

// takeOverHelp says how a machine learns which plan was approved.
const takeOverHelp = "\nA machine that did not begin the migration must know which plan was approved: --plan FILE, or --expect HASH.\n" +
	"Without them, Theseus shows what the plan would run and delete, and asks; without a terminal, it refuses."

// NewRollback makes the command theseus rollback.
func NewRollback(a *app.App) *cobra.Command {
	approvals, access := &approval.Flags{}, &mirror.Access{}
	command := migrations.Command(a, "rollback", "Roll a migration back, before its point of no return",
		"Undoes every step that was done, newest first. If another process runs the migration, this command asks\n"+
			"that process to roll back; otherwise it rolls back itself."+takeOverHelp,
		func(ctx context.Context, client *kube.Client, name string) error {
			return takeOver(ctx, a, client, name, v1alpha1.DesireRollback, *access, approvals)
		})
	approvals.Register(command)
	pair.RegisterAccess(command, access)
	return command
}

// takeOver runs the engine here with the plan in the cluster. If another process runs the migration, takeOver
// only asks that process to roll back.
func takeOver(ctx context.Context, a *app.App, client *kube.Client, name string, desire v1alpha1.Desire, access mirror.Access, f *approval.Flags) error {
	if err := f.Signers.Validate(); err != nil {
		return err
	}
	if f.Signers.List != "" && f.File == "" {
		return exit.Fail(exit.Usage, "add --plan FILE; the signatures are files next to it", "--signed-by checks the signatures of a plan file, and no --plan is given")
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
	next.Desire, next.Fresh = desire, run.FailedBefore(records)
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
	fmt.Fprintf(a.Out, "asked %s, which runs %s, to roll back; `theseus status` shows how far it is\n", held.Holder, name)
	return nil
}

// mayTakeOver refuses to take over a migration that has ended, or to roll back past the point of no return.
func mayTakeOver(p *plan.Plan, records []engine.Record, desire v1alpha1.Desire) error {
	state, err := engine.Replay(records)
	if err == nil && state.Over() {
		return migrations.Over(p.Name, state)
	}
	if state, err = engine.Admit(p, records); err != nil {
		return err
	}
	if desire == v1alpha1.DesireRollback && state.PastReturn(p.Steps) {
		return exit.Fail(exit.NeedsPerson, "`theseus resume` finishes it; to go back, plan the change in the other direction",
			"%s is past its point of no return", p.Name)
	}
	return nil
}
