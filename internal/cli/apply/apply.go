package apply

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// NewCommand makes the command theseus apply.
func NewCommand(a *app.App) *cobra.Command {
	var yes, dry bool
	var signers planfile.Signers
	var access mirror.Access
	command := &cobra.Command{
		Use:   "apply PLAN",
		Short: "Carry out a plan step by step, and roll back when a gate fails",
		Long: "Carries out a plan step by step. Theseus writes every action to the journal in the cluster before it starts\n" +
			"the action. A gate on measured connectivity follows every change; when a gate fails, Theseus rolls back.\n" +
			"You can interrupt it at any moment: once to stop after the current action, twice to stop at once.\n" +
			"`theseus resume` continues, here or on another machine.",
		Args: usage.Exactly(1, "one plan file"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := signers.Validate(); err != nil {
				return err
			}
			return apply(command.Context(), a, args[0], &signers, access, yes, dry)
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "do not ask (required when the input is not a terminal)")
	command.Flags().BoolVar(&dry, "dry-run", false, "check everything, print what would be done, and change nothing")
	signers.Register(command)
	pair.RegisterAccess(command, &access)
	return usage.Takes(command, "json")
}

func apply(ctx context.Context, a *app.App, file string, signers *planfile.Signers, access mirror.Access, yes, dry bool) error {
	p, data, err := planfile.ReadData(file)
	if err != nil {
		return err
	}
	who, err := signers.Check(file, data)
	if err != nil {
		return err
	}
	if err := plan.Verify(p); err != nil {
		return exit.Fail(exit.Failed, "make a new plan with `theseus plan`", "the plan is invalid: %w", err)
	}
	if _, ok := a.Terminal(); !yes && !dry && !ok {
		return exit.Fail(exit.Usage, "read the plan, then add --yes", "apply asks before it changes a cluster, and the input is not a terminal")
	}
	if err := run.HooksRun(p); err != nil {
		return err
	}
	if p.Cluster.UID == "" && p.OnNodes() {
		return exit.Fail(exit.Failed, "make the plan from the live cluster, or from a file of theseus snapshot",
			"the plan does not name its cluster: its input had no Namespace kube-system")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if err := admit(ctx, a, client, access, p); err != nil {
		return err
	}
	if dry {
		return planfile.Write(a, p, "")
	}
	if _, err := statedir.Make(p.Name); err != nil {
		return err
	}
	if len(who) > 0 {
		fmt.Fprintf(a.Err, "%s (hash %s) is signed by %s\n", p.Name, p.Hash, strings.Join(who, ", "))
	}
	if err := confirm(ctx, a, p, yes); err != nil {
		return err
	}
	if err := a.Patiently(ctx, app.Begin, func(ctx context.Context) error { return run.Prepare(ctx, client) }); err != nil {
		return err
	}
	if err := approval.Keep(p); err != nil {
		return err
	}
	return execute.Run(ctx, a, execute.New(a, client, access, p, true))
}

// admit refuses a plan that was made for another cluster, or for this one as it was.
func admit(ctx context.Context, a *app.App, client *kube.Client, access mirror.Access, p *plan.Plan) error {
	if p.Mirror != nil {
		if err := admitMirror(ctx, a, client, access, p); err != nil || !p.OnNodes() {
			return err
		}
	}
	var snapshot *cluster.Snapshot
	if err := a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		snapshot, err = kube.Snapshot(ctx, client, a.Version, time.Now())
		return err
	}); err != nil {
		return err
	}
	if snapshot.UID != p.Cluster.UID {
		return exit.Fail(exit.Failed, "choose the cluster with --context, or make a new plan for this one",
			"the plan was made for another cluster (%s, this is %s)", p.Cluster.UID, snapshot.UID)
	}
	if err := alone(ctx, a, client, p.Name); err != nil {
		return err
	}
	if err := survey.AskRights(ctx, client, snapshot, p); err != nil {
		return err
	}
	// New blocking findings may have appeared since the plan was made, and another user may have made it.
	pass := &check.Pass{Snapshot: snapshot, Change: p.Change, Found: drivers.All().Detect(snapshot), Source: &p.Source}
	if !p.InPlace() {
		pass.Target = &p.Target
	}
	result := preflight.Run(preflight.All(), pass, survey.Options(p.Change))
	if err := survey.MustNotBlock(a, result, "fix the findings, then apply again; or accept them in a new plan: theseus plan --accept ID=REASON"); err != nil {
		return err
	}
	if stale := plan.Stale(p, snapshot); len(stale) > 0 {
		return exit.Fail(exit.Failed, "make a new plan with `theseus plan`", "the cluster has changed since the plan was made: %s", strings.Join(stale, "; "))
	}
	return nil
}

// alone refuses to begin while another migration has not ended, or if this one has begun.
func alone(ctx context.Context, a *app.App, client *kube.Client, name string) error {
	known, err := journal.List(ctx, client.Dynamic)
	if apierrors.IsForbidden(err) {
		return nil // without that right apply does not begin: the check of rights reports all missing rights
	}
	if err != nil {
		return err
	}
	for _, migration := range known {
		over := engine.Phase(migration.Status.Phase) == engine.PhaseDone || engine.Phase(migration.Status.Phase) == engine.PhaseRolledBack
		if over && migration.Name == name {
			return exit.Fail(exit.Failed, "make a new plan", "migration %s has already ended (%s)", name, migration.Status.Phase)
		}
		if over {
			continue
		}
		holder, err := journal.HeldBy(ctx, run.Leases(client))
		if err != nil {
			return err
		}
		if holder != nil {
			return exit.Fail(exit.Failed, holder.Hint(), "migration %s is running: %w", migration.Name, holder)
		}
		ways := "`theseus status` says how to continue"
		if p, _, err := journal.Load(ctx, client.Dynamic, migration.Name); err == nil {
			if _, state, err := migrations.Standing(ctx, client, migration.Name); err == nil {
				ways = engine.Judge(p.Steps, state, false).Ways
			}
		}
		if migration.Name == name {
			return exit.Fail(exit.Failed, ways, "migration %s has already begun, and no process runs it", name)
		}
		return exit.Fail(exit.Failed, "`theseus status` shows it; "+ways,
			"another migration has not ended, and no process runs it: %s", migration.Name)
	}
	return nil
}

// confirm asks once, on a terminal, after saying what is about to happen.
func confirm(ctx context.Context, a *app.App, p *plan.Plan, yes bool) error {
	if yes {
		return nil
	}
	what := p.Size()
	if p.Mirror != nil {
		what = cluster.Count(len(p.Mirror.Names.Moves), "name")
		if p.OnNodes() {
			what += ", " + p.Size()
		}
	}
	fmt.Fprintf(a.Err, "%s: %s -> %s by %s\n%s, %s, %s.\n",
		p.Name, p.From(), p.To(), p.Strategy, what, cluster.Count(len(p.Steps), "step"), view.About(time.Duration(p.Estimate)))
	return a.Typed(ctx, p.To())
}
