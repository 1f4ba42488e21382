package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/benching"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/notify"
)

// NewResume makes the command theseus resume.
func NewResume(a *app.App) *cobra.Command {
	approvals, access, outward, inCluster, anyTime, key := &approval.Flags{}, &mirror.Access{},
		&execute.Outward{}, false, false, ""
	around, writes := &benching.Around{}, &execute.Writes{}
	command := migrations.Command(a, "resume", "Continue a migration, from any machine",
		"Continues where the journal in the cluster ends, with the plan in the cluster. If the controller\n"+
			"in the cluster has the migration, this command takes it over: the controller stops after its\n"+
			"current action. With --in-cluster, the controller continues it, after a pause or a failure too,\n"+
			"and this command shows the run as `theseus watch` does. It then also approves the plan in your\n"+
			"name, if you have not; where only signed approvals count, add --sign KEY. Outside of the\n"+
			"migration's windows, and while the cluster is frozen, this machine does not continue; the\n"+
			"controller continues by itself when a window opens or the freeze ends."+takeOverHelp,
		func(ctx context.Context, client *kube.Client, name string) error {
			if inCluster {
				return resumeInCluster(ctx, a, client, name, approvals, key)
			}
			if err := around.Resumable(name); err != nil {
				return err
			}
			err := takeOver(ctx, a, client, name, v1alpha1.DesireRun, *access, approvals, outward, writes, anyTime)
			if err != nil {
				return err
			}
			return around.Again(ctx, a, client, name)
		})
	command.PreRunE = func(*cobra.Command, []string) error { // before the cluster is asked
		if inCluster && anyTime {
			return exit.Fail(exit.Usage, "change spec.windows of the migration, or continue here, without --in-cluster",
				"--outside-windows is given with --in-cluster, and the controller keeps to the windows")
		}
		if inCluster && outward.Given() {
			return exit.Fail(exit.Usage,
				"set it in the controller: the values metrics.enabled and notify.secretName of its chart",
				"--metrics and --notify are for a run on this machine, and --in-cluster is given")
		}
		if inCluster && around.Given() {
			return exit.Fail(exit.Usage, "leave --bench out",
				"--bench is for a run on this machine, and --in-cluster is given")
		}
		return cmp.Or(planfile.MaySign(key, inCluster), writes.Check(inCluster), outward.Check())
	}
	outward.Register(command, notify.Gets)
	around.RegisterAgain(command)
	writes.Register(command)
	planfile.RegisterSign(command, &key, "with --in-cluster: ")
	command.Flags().BoolVar(&inCluster, "in-cluster", false, "let the controller in the cluster continue it")
	command.Flags().BoolVar(&anyTime, "outside-windows", false, "continue here also outside of the migration's windows")
	approvals.Register(command)
	pair.RegisterAccess(command, access)
	return command
}

// takeOverHelp says how a machine learns which plan was approved.
const takeOverHelp = "\nA machine that did not begin the migration must know which plan was approved: " +
	"--plan FILE, or --expect HASH.\n" +
	"Without them, Theseus shows what the plan would run and delete, and asks; without a terminal, it refuses."

// NewRollback makes the command theseus rollback.
func NewRollback(a *app.App) *cobra.Command {
	approvals, access, outward, writes := &approval.Flags{}, &mirror.Access{}, &execute.Outward{}, &execute.Writes{}
	command := migrations.Command(a, "rollback", "Roll a migration back, before its point of no return",
		"Undoes every step that was done, newest first. If another process runs the migration, this command asks\n"+
			"that process to roll back; otherwise it rolls back itself. If the controller in the "+
			"cluster has the migration, this\n"+
			"command also shows the rollback until it ends, as `theseus watch` does."+takeOverHelp,
		func(ctx context.Context, client *kube.Client, name string) error {
			return takeOver(ctx, a, client, name, v1alpha1.DesireRollback, *access, approvals, outward, writes, false)
		})
	command.PreRunE = func(*cobra.Command, []string) error { return cmp.Or(writes.Check(false), outward.Check()) }
	outward.Register(command, notify.Gets)
	writes.Register(command)
	approvals.Register(command)
	pair.RegisterAccess(command, access)
	return command
}

// takeOver runs the engine here with the plan in the cluster. If another process runs the migration, takeOver
// only asks that process to roll back. anyTime continues outside of the migration's windows.
func takeOver(ctx context.Context, a *app.App, client *kube.Client, name string, desire v1alpha1.Desire,
	access mirror.Access, f *approval.Flags, outward *execute.Outward, writes *execute.Writes, anyTime bool) error {
	if err := f.Validate(); err != nil {
		return err
	}
	p, migration, records, err := asking.Load(ctx, a, client, name)
	if err == nil {
		err = asking.MayTakeOver(p, records, desire)
	}
	if err != nil {
		return err
	}
	// before, there is nothing to undo
	if migration.Spec.InCluster && desire == v1alpha1.DesireRollback && len(records) > 0 {
		err := incluster.Able(migration)
		if err == nil {
			err = incluster.Available(ctx, a, client)
		}
		if err == nil {
			if err := writes.Elsewhere(name); err != nil {
				return err
			}
			return rollBackInCluster(ctx, a, client, name, records)
		}
		fmt.Fprintf(a.Err, "note: the controller cannot roll %s back, so this machine does: %v\n", name, err)
	}
	if desire == v1alpha1.DesireRun {
		state, err := engine.Replay(records)
		if err == nil && state.Measures() {
			return exit.Fail(exit.Failed, "`theseus guard stop` ends it with a verdict, `theseus rollback` without one",
				"%s measures what others change, and has nothing to continue", p.Name)
		}
		if err == nil {
			err = incluster.MayContinue(ctx, a, client, p, migration, state, anyTime)
		}
		if err != nil {
			return err
		}
	}
	next := writes.Of(execute.New(a, client, access, p, false))
	next.Desire, next.AnyTime = desire, anyTime
	f.Held = migration.Spec.InCluster
	next.Head, err = approval.Approve(ctx, a, client, p, records, f)
	if err == nil && migration.Spec.InCluster {
		records, next.Head, err = takeBack(ctx, a, client, name, records, next.Head)
	}
	next.Fresh = run.FailedBefore(records) && !p.Foreign() // a guard says what was lost from the beginning
	if err == nil {
		err = execute.Run(ctx, a, next, outward)
	}
	var held *journal.HeldError
	if desire != v1alpha1.DesireRollback || !errors.As(err, &held) || !held.Runs() { // who only looks cannot roll back
		return err
	}
	if err := writes.Elsewhere(name); err != nil {
		return err
	}
	return asking.AskHolder(ctx, a, client, name, held)
}
