package pair

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/mirror/zonefile"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
	"github.com/theseus-cni/theseus/internal/run/mirrored"
)

// RegisterAccess adds the flags that say how to reach the mirror and the zones.
func RegisterAccess(command *cobra.Command, access *mirror.Access) {
	flags := command.Flags()
	flags.StringVar(&access.Kubeconfig, "mirror-kubeconfig", "",
		"strategy mirror: kubeconfig file of the mirror (else that of the original)")
	flags.StringVar(&access.Context, "mirror-context", "", "strategy mirror: context of the mirror")
	flags.StringVar(&access.Zones, "zones", "", "strategy mirror: file that says how to reach the zones")
}

// Named is the pair of clusters that access names, or else the setup of a plan.
func Named(a *app.App, access, planned mirror.Access) (*clusters.Clusters, string) {
	if access.Kubeconfig == "" && access.Context == "" {
		access.Kubeconfig, access.Context = planned.Kubeconfig, planned.Context
	}
	m := &clusters.Clusters{App: a, Other: genericclioptions.NewConfigFlags(true)}
	*m.Other.KubeConfig, *m.Other.Context = access.Kubeconfig, access.Context
	return m, cmp.Or(access.Zones, planned.Zones)
}

// Reach connects to both clusters and the zones, and checks that the clusters are the plan's. access says how to reach
// the mirror and the zones; if it is empty, the plan does.
func Reach(ctx context.Context, a *app.App, access mirror.Access, p *plan.Plan) (*mirrored.World, error) {
	m, zones := Named(a, access, p.Mirror.Access)
	world := &mirrored.World{Plan: p, Version: a.Version}
	client, err := a.Client()
	if err != nil {
		return nil, err
	}
	other, err := m.MirrorClient()
	if err != nil {
		return nil, err
	}
	for _, one := range []struct {
		into   **replica.Cluster
		client *kube.Client
		id     string
		what   string
	}{{&world.Original, client, p.Mirror.Original, "the original"},
		{&world.Mirror, other, p.Mirror.Mirror, "the mirror"}} {
		if *one.into, err = replica.Connect(one.client); err != nil {
			return nil, err
		}
		id, err := (*one.into).Identity(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.what, err)
		}
		if id != one.id {
			return nil, exit.Fail(exit.Failed,
				"name it with --mirror-context or --mirror-kubeconfig, and the original with --context",
				"this cluster is not %s of the plan", one.what)
		}
	}
	if world.Config, err = zonefile.Read(zones); err != nil {
		return nil, err
	}
	world.Zones, err = world.Config.Open(ctx)
	return world, err
}
