package approve

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// NewCommand makes the command theseus approve.
func NewCommand(a *app.App) *cobra.Command {
	flags, key := &approval.Flags{}, ""
	command := migrations.Command(a, "approve",
		"Approve the plan of a migration that the controller in the cluster runs",
		"Approves the plan of a migration in your name, as the API server knows you. The controller "+
			"in the cluster begins once\n"+
			"enough people have approved exactly this plan. You need the permissions that "+
			"`theseus rights approve` prints.\n"+
			"Say which plan you have read: --plan FILE, or --expect HASH. Without them, Theseus "+
			"shows what the plan in the\n"+
			"cluster does, and asks; without a terminal, it refuses. An approval of a plan cannot be changed.\n"+
			"Before Kubernetes 1.30, and wherever the controller has a list of allowed signers, only signed "+
			"approvals count: add\n"+
			"--sign KEY. The signature is of the plan's hash, and the controller counts the people on its list "+
			"who have signed.",
		func(ctx context.Context, client *kube.Client, name string) error {
			return approve(ctx, a, client, name, flags, key)
		})
	flags.RegisterPlan(command)
	command.Flags().StringVar(&key, "sign", "",
		"sign the approval with this SSH key; with a public one (.pub), the SSH agent signs")
	return command
}

func approve(ctx context.Context, a *app.App, client *kube.Client, name string, f *approval.Flags,
	key string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	p, migration, records, err := asking.Load(ctx, a, client, name)
	if err == nil {
		err = asking.Approvable(ctx, a, client, p, records)
	}
	if err != nil {
		return err
	}
	if err := read(ctx, a, p, records, f); err != nil {
		return err
	}
	signature, err := planfile.SignHash(a, p, key)
	if err != nil {
		return err
	}
	done, err := incluster.Approve(ctx, a, client, p, signature)
	if err != nil {
		return err
	}
	if a.Output == "json" {
		return json.NewEncoder(a.Out).Encode(map[string]any{"name": name, "plan": p.Hash, "user": done.User,
			"already": done.Already, "signed": done.Signed, "approvedBy": done.By})
	}
	fmt.Fprintf(a.Out, "%s (hash %s): %s\n", name, p.Hash, done)
	if signs := incluster.ApprovedWith(migration); signs != "" && !done.Signed {
		fmt.Fprintf(a.Err, "note: the controller counts only signed approvals: %s\n", signs)
	}
	if !migration.Spec.InCluster {
		fmt.Fprintf(a.Out, "the controller does not run %s yet: `theseus resume %[1]s --in-cluster` lets it\n", name)
		return nil
	}
	fmt.Fprintf(a.Out, "`theseus watch %s` shows whether it begins\n", name)
	return nil
}

// read makes sure that the person has read the plan in the cluster, and no other. What this machine was told to run
// does not count: another person may have told it.
func read(ctx context.Context, a *app.App, p *plan.Plan, records []engine.Record, f *approval.Flags) error {
	named, err := f.Named(p)
	if err != nil {
		return err
	}
	_, asks := a.Terminal()
	if !named && !asks {
		return exit.Fail(exit.Usage, "name the plan that you have read with --plan FILE, or its hash with --expect "+
			"HASH; on a terminal, Theseus shows the plan and asks",
			"which plan of %s is approved is not said", p.Name)
	}
	if err := approval.Describe(a.Err, p, records); err != nil || named {
		return err
	}
	return a.Typed(ctx, p.To())
}
