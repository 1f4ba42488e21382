package mirror

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/mirror/certs"
	"github.com/theseus-cni/theseus/internal/cli/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/mirror/config"
	"github.com/theseus-cni/theseus/internal/cli/mirror/copy"
	"github.com/theseus-cni/theseus/internal/cli/mirror/dns"
	"github.com/theseus-cni/theseus/internal/cli/mirror/freeze"
	"github.com/theseus-cni/theseus/internal/cli/mirror/registry"
	"github.com/theseus-cni/theseus/internal/cli/mirror/status"
	"github.com/theseus-cni/theseus/internal/cli/mirror/teardown"
	"github.com/theseus-cni/theseus/internal/cli/usage"
)

// NewCommand makes the command theseus mirror.
func NewCommand(a *app.App) *cobra.Command {
	m := &clusters.Clusters{App: a, Other: genericclioptions.NewConfigFlags(true)}
	command := &cobra.Command{
		Use:   "mirror",
		Short: "Move the workloads of a cluster to a second one, its mirror, and back",
		Long: "The strategy for clusters in which nothing may change under traffic: Theseus " +
			"copies everything to a second\n" +
			"cluster, moves traffic there, changes the network of the idle original, and moves traffic back.\n" +
			"--kubeconfig and --context name the original, --mirror-kubeconfig and --mirror-context the mirror.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.PersistentFlags().StringVar(m.Other.KubeConfig, "mirror-kubeconfig", "",
		"kubeconfig file of the mirror (else that of the original)")
	command.PersistentFlags().StringVar(m.Other.Context, "mirror-context", "", "context of the mirror")
	command.AddCommand(certs.NewCommand(m), config.NewCommand(m), cloud.NewCommand(m), dns.NewCommand(m))
	command.AddCommand(m.Printing(freeze.NewFreeze(m), freeze.NewThaw(m), registry.NewCommand(m), copy.NewCopy(m),
		copy.NewDiff(m), status.NewCommand(m), teardown.NewCommand(m))...)
	return command
}
