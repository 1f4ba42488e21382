package pair

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Doing is a command's action on a plan. access says how to reach the plan's mirror and zones.
type Doing func(ctx context.Context, client *kube.Client, access mirror.Access, p *plan.Plan) error

// Command is a command about one migration by the strategy mirror: the named one, or the latest.
func Command(m *clusters.Clusters, use, short, long string, do Doing) *cobra.Command {
	var access mirror.Access
	command := &cobra.Command{
		Use: use + " [MIGRATION]", Short: short, Long: long,
		Args: usage.AtMostOne("one migration's name"),
		RunE: func(command *cobra.Command, args []string) error {
			access.Kubeconfig, access.Context = *m.Other.KubeConfig, *m.Other.Context
			ctx := command.Context()
			client, err := m.Client()
			if err != nil {
				return err
			}
			p, err := mirrorPlan(ctx, client, args)
			if err != nil {
				return err
			}
			if err := mayReach(access, p); err != nil {
				return err
			}
			return do(ctx, client, access, p)
		},
	}
	command.Flags().StringVar(&access.Zones, "zones", "",
		"file that says how to reach the zones (else that of the plan)")
	return command
}

// mayReach refuses to open files of this machine that a plan in the cluster names, unless the plan was approved on this
// machine.
func mayReach(access mirror.Access, p *plan.Plan) error {
	if known, err := (&approval.Flags{}).Known(p); err != nil || known {
		return err
	}
	planned := p.Mirror.Access
	if (planned.Kubeconfig+planned.Context == "" || access.Kubeconfig+access.Context != "") &&
		(planned.Zones == "" || access.Zones != "") {
		return nil
	}
	return exit.Fail(exit.Usage, "name the mirror with --mirror-kubeconfig or --mirror-context, and --zones; or use "+
		"the machine that runs the migration",
		"this machine does not know which plan of %s was approved, and does not open files that only the cluster names",
		p.Name)
}

// mirrorPlan is the plan of the named migration, or of the latest one by this strategy.
func mirrorPlan(ctx context.Context, client *kube.Client, names []string) (*plan.Plan, error) {
	if len(names) == 0 {
		all, err := journal.List(ctx, client.Dynamic)
		if err != nil {
			return nil, err
		}
		for _, one := range all {
			names = append(names, one.Name)
		}
	} else if p, _, err := journal.Load(ctx, client.Dynamic, names[0]); err != nil || p.Mirror == nil {
		if err == nil {
			err = exit.Fail(exit.Failed, "`theseus status` shows it", "%s is a migration by the strategy %s",
				names[0], p.Strategy)
		}
		return nil, err
	}
	for _, name := range names { // the newest first
		p, _, err := journal.Load(ctx, client.Dynamic, name)
		if err != nil {
			return nil, err
		}
		if p.Mirror != nil {
			return p, nil
		}
	}
	return nil, exit.Fail(exit.Failed, "theseus plan --strategy mirror --help",
		"this cluster has no migration by the strategy mirror")
}
