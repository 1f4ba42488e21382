package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// migrationCommand is a command about one migration: the one named, or the latest.
func (a *app) migrationCommand(use, short, long string, do func(context.Context, *kube.Client, string) error) *cobra.Command {
	command := &cobra.Command{
		Use: use + " [MIGRATION]", Short: short, Long: long,
		Args: atMostOne("one migration's name"),
		RunE: func(command *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			name, limits := "", glance
			if use == "resume" || use == "rollback" {
				limits = begin
			}
			if len(args) == 1 {
				name = args[0]
			} else if err = a.patiently(command.Context(), limits, func(ctx context.Context) (err error) {
				name, err = latest(ctx, client)
				return err
			}); err != nil {
				return err
			}
			return do(command.Context(), client, name)
		},
	}
	if use == "resume" || use == "rollback" {
		registerAccess(command, &a.access)
	}
	if use == "report" {
		return command // it writes files, too
	}
	return takes(command, "json")
}

// latest is the migration that was created last.
func latest(ctx context.Context, client *kube.Client) (string, error) {
	all, err := journal.List(ctx, client.Dynamic)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", fail(exitFailed, "make a plan and apply it (theseus plan --help), or check the kubeconfig's context", "no migration was ever begun in this cluster")
	}
	newest := slices.MaxFunc(all, func(x, y v1alpha1.Migration) int {
		return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
	})
	return newest.Name, nil
}

func (a *app) statusCommand() *cobra.Command {
	return a.migrationCommand("status", "Say where a migration stands",
		"Reads the journal in the cluster and says where the migration stands and what can be done next.",
		a.status)
}

func (a *app) status(ctx context.Context, client *kube.Client, name string) error {
	var p *plan.Plan
	var migration *v1alpha1.Migration
	var records []engine.Record
	var state engine.State
	var holder *journal.HeldError
	var local []engine.Record
	err := a.patiently(ctx, glance, func(ctx context.Context) (err error) {
		if p, migration, err = journal.Load(ctx, client.Dynamic, name); err != nil {
			return err
		}
		if _, local, err = kept(p); err != nil { // before the cluster's, which may get more meanwhile
			return err
		}
		if records, state, err = standing(ctx, client, name); err != nil {
			return err
		}
		holder, err = journal.HeldBy(ctx, run.Leases(client))
		return err
	})
	if err != nil {
		return err
	}
	stand := engine.Judge(p.Steps, state, holder != nil)
	seen, unread := a.seen(ctx, client, p)
	if a.output == "json" {
		stands := map[string]any{"name": name, "state": stand.Word, "resume": stand.Resume, "rollback": stand.Rollback,
			"since": stand.Since, "leftSeconds": int(stand.Left.Seconds()), "gate": stand.Gate, "waits": stand.Waits, "phase": state.Phase, "step": state.Step,
			"steps": len(p.Steps), "records": len(records), "desire": migration.Spec.Desire, "cause": state.Cause,
			"plan": p.Hash, "head": state.Head}
		if seen.Paths > 0 {
			stands["evidence"] = seen
		}
		if unread != nil {
			stands["evidenceError"] = unread.Error()
		}
		if holder != nil {
			stands["heldBy"] = holder.Holder
		}
		return errors.Join(json.NewEncoder(a.Out).Encode(stands), contradiction(p, local, records))
	}
	fmt.Fprintf(a.Out, "%s: %s -> %s, %s\n", name, p.From(), p.To(), stand.Word)
	script := run.NewScript(p)
	if current := script.Step(state.Step); current != nil && !state.Over() {
		fmt.Fprintf(a.Out, "step %d of %d: %s\n", script.Index(state.Step), script.Total(), current.Title)
	}
	if stand.Gate != "" {
		fmt.Fprintf(a.Out, "gate: %s: %s\n", stand.Gate, stand.Waits)
	}
	switch {
	case seen.Paths > 0 && unread != nil:
		fmt.Fprintf(a.Out, "probes: %s (as kept on this machine; the cluster's reports cannot be read: %v)\n", seen, unread)
	case seen.Paths > 0:
		fmt.Fprintf(a.Out, "probes: %s\n", seen)
	}
	if !state.Over() && !stand.Since.IsZero() {
		line := "last act: " + step.Duration(time.Since(stand.Since)).About() + " ago"
		if stand.Left > 0 {
			line += "; left: " + about(stand.Left)
		}
		fmt.Fprintln(a.Out, line)
	}
	a.sayIdentity(p, records, local)
	if state.Cause != "" {
		fmt.Fprintf(a.Out, "because: %s\n", state.Cause)
	}
	if migration.Spec.Desire != v1alpha1.DesireRun && !state.Over() {
		fmt.Fprintf(a.Out, "asked to: %s\n", strings.ToLower(string(migration.Spec.Desire)))
	}
	switch {
	case holder != nil:
		fmt.Fprintln(a.Out, holder)
	case !state.Over():
		fmt.Fprintln(a.Out, "nobody runs it: "+stand.Ways)
	}
	return contradiction(p, local, records)
}

// seen is what the probes of a migration have seen, by the evidence on this machine and in the cluster. The error says
// why one of them cannot be read: status then tells what it can.
func (a *app) seen(ctx context.Context, client *kube.Client, p *plan.Plan) (run.Seen, error) {
	if !p.OnNodes() {
		return run.Seen{}, nil
	}
	dir, err := stateDir(p.Name)
	if err != nil {
		return run.Seen{}, err
	}
	actor := &kube.Actor{Typed: client.Typed, Dynamic: client.Dynamic, Mapper: client.Mapper, Clock: run.Clock{}}
	evidence, err := run.Gather(ctx, actor, dir)
	return run.SeenIn(evidence), err
}

func (a *app) pauseCommand() *cobra.Command {
	return a.migrationCommand("pause", "Ask a running migration to stop after the action at hand",
		"Asks a running migration to stop between two actions, or in the middle of a measurement. Everything works\n"+
			"as it stands then.",
		a.pause)
}

func (a *app) pause(ctx context.Context, client *kube.Client, name string) error {
	return a.patiently(ctx, begin, func(ctx context.Context) error { return a.askPause(ctx, client, name) })
}

func (a *app) askPause(ctx context.Context, client *kube.Client, name string) error {
	p, _, err := journal.Load(ctx, client.Dynamic, name)
	if err != nil {
		return err
	}
	_, state, err := standing(ctx, client, name)
	if err != nil {
		return err
	}
	if state.Over() {
		return overError(name, state)
	}
	holder, err := journal.HeldBy(ctx, run.Leases(client))
	if err != nil {
		return err
	}
	if holder == nil {
		if a.output == "json" {
			return a.asked(name, "")
		}
		fmt.Fprintf(a.Out, "nobody runs %s: it stands still as it is; %s\n", name, engine.Judge(p.Steps, state, false).Ways)
		return nil
	}
	if err := journal.SetDesire(ctx, client.Dynamic, name, v1alpha1.DesirePause); err != nil {
		return err
	}
	if a.output == "json" {
		return a.asked(name, holder.Holder)
	}
	fmt.Fprintf(a.Out, "asked %s, who runs %s, to pause; `theseus status` shows when it has\n", holder.Holder, name)
	return nil
}

// asked says as JSON who was asked to do something with a migration; empty when nobody runs it.
func (a *app) asked(name, holder string) error {
	return json.NewEncoder(a.Out).Encode(map[string]string{"name": name, "asked": holder})
}

// standing is the journal of a migration in the cluster, and what it says.
func standing(ctx context.Context, client *kube.Client, name string) ([]engine.Record, engine.State, error) {
	records, err := journal.NewCluster(client.Dynamic, name).Records(ctx)
	if err != nil {
		return nil, engine.State{}, err
	}
	state, err := engine.Replay(records)
	return records, state, err
}

func overError(name string, state engine.State) error {
	return fail(exitFailed, "`theseus report` shows what happened", "migration %s is over: %s", name, state.Phase)
}

func (a *app) resumeCommand() *cobra.Command {
	approvals := &approvals{}
	command := a.migrationCommand("resume", "Go on with a migration, from any machine",
		"Goes on where the journal in the cluster ends, with the plan that the cluster holds."+takeOverHelp,
		func(ctx context.Context, client *kube.Client, name string) error {
			return a.takeOver(ctx, client, name, v1alpha1.DesireRun, approvals)
		})
	approvals.register(command)
	return command
}

// takeOverHelp says how a machine learns which plan was approved.
const takeOverHelp = "\nA machine that did not begin the migration must know which plan was approved: --plan FILE, or --expect HASH.\n" +
	"Without them it shows what the plan would run and delete, and asks; without a terminal it refuses."

func (a *app) rollbackCommand() *cobra.Command {
	approvals := &approvals{}
	command := a.migrationCommand("rollback", "Take a migration back, before its point of no return",
		"Walks the undo of every step that was done, newest first. When another operator runs the migration,\n"+
			"it is asked to roll back; when nobody does, this command does it."+takeOverHelp,
		func(ctx context.Context, client *kube.Client, name string) error {
			return a.takeOver(ctx, client, name, v1alpha1.DesireRollback, approvals)
		})
	approvals.register(command)
	return command
}

// takeOver runs the engine here with the plan of the cluster. A rollback of a migration that somebody
// else is running is only asked for.
func (a *app) takeOver(ctx context.Context, client *kube.Client, name string, desire v1alpha1.Desire, f *approvals) error {
	if err := f.signers.validate(); err != nil {
		return err
	}
	if f.signers.list != "" && f.file == "" {
		return fail(exitUsage, "say --plan FILE, beside which the signatures are", "--signed-by checks the signatures of a plan's file, and none is named")
	}
	var p *plan.Plan
	var records []engine.Record
	err := a.patiently(ctx, begin, func(ctx context.Context) (err error) {
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
	next := a.newRun(client, p, false)
	next.Desire, next.Fresh = desire, failedBefore(records)
	if next.Head, err = a.approve(ctx, client, p, records, f); err == nil {
		err = a.carryOut(ctx, next)
	}
	var held *journal.HeldError
	if desire != v1alpha1.DesireRollback || !errors.As(err, &held) {
		return err
	}
	if err := a.patiently(ctx, begin, func(ctx context.Context) error {
		return journal.SetDesire(ctx, client.Dynamic, name, desire)
	}); err != nil {
		return err
	}
	if a.output == "json" {
		return a.asked(name, held.Holder)
	}
	fmt.Fprintf(a.Out, "asked %s, who runs %s, to roll back; `theseus status` shows how far it is\n", held.Holder, name)
	return nil
}

// mayTakeOver refuses what cannot be.
func mayTakeOver(p *plan.Plan, records []engine.Record, desire v1alpha1.Desire) error {
	state, err := engine.Replay(records)
	if err == nil && state.Over() {
		return overError(p.Name, state)
	}
	if state, err = engine.Admit(p, records); err != nil {
		return err
	}
	if desire == v1alpha1.DesireRollback && state.PastReturn(p.Steps) {
		return fail(exitNeedsPerson, "`theseus resume` finishes it; to go back, plan the change the other way",
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
