package approve

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
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
	planfile.RegisterSign(command, &key, "")
	return command
}

func approve(ctx context.Context, a *app.App, client *kube.Client, name string, f *approval.Flags,
	key string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	p, migration, records, err := asking.Load(ctx, a, client, name)
	if err != nil {
		return err
	}
	signature, err := asking.Read(ctx, a, client, p, records, f, key)
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
	done.Warn(a, incluster.ApprovedWith(migration))
	if !migration.Spec.InCluster {
		fmt.Fprintf(a.Out, "the controller does not run %s yet: `theseus resume %[1]s --in-cluster` lets it\n", name)
		return nil
	}
	fmt.Fprintf(a.Out, "`theseus watch %s` shows whether it begins\n", name)
	return nil
}
